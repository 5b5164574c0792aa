"""Show the API as a page, generated from its OpenAPI description, without third-party scripts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.models import TokenScope


@dataclass(frozen=True)
class Operation:
    """Describe one operation of the API."""

    method: str
    path: str
    summary: str
    about: str
    parameters: tuple[dict[str, Any], ...]
    body: tuple[tuple[str, str, bool], ...]


@login_required
@require_safe
def api_page(request: HttpRequest) -> HttpResponse:
    """List all operations by subject, with the scopes of tokens."""
    context = {"groups": operations(), "scopes": TokenScope.choices, "host": request.build_absolute_uri("/")[:-1]}
    return render(request, "api/page.html", context)


@cache
def operations() -> dict[str, list[Operation]]:
    """Read the operations from the OpenAPI description, which does not change while the site runs."""
    # Import late: the API imports views, of which this is one.
    from optimizer.api.root import api

    schema = api.get_openapi_schema()
    parts = schema.get("components", {}).get("schemas", {})
    groups: dict[str, list[Operation]] = defaultdict(list)
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            groups[told.get("tags", ["other"])[0]].append(_operation(method, path, told, parts))
    return dict(sorted(groups.items()))


def _operation(method: str, path: str, told: dict[str, Any], parts: dict[str, Any]) -> Operation:
    content = told.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    body = parts.get(name, {})
    fields = [
        (field, _type(shape), field in body.get("required", []))
        for field, shape in body.get("properties", {}).items()
    ]
    return Operation(
        method.upper(), path, told.get("summary", ""), told.get("description", ""),
        tuple(told.get("parameters", [])), tuple(fields),
    )  # fmt: skip


def _type(shape: dict[str, Any]) -> str:
    if "anyOf" in shape:
        return " or ".join(_type(one) for one in shape["anyOf"])
    return str(shape.get("type") or shape.get("$ref", "").rpartition("/")[2] or shape.get("title", ""))
