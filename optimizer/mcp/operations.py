"""Call an operation of the JSON API inside this process, as the holder of a token.

A tool of the MCP server is one operation, or a few. It is called with the agent's own token, so that scopes, roles,
validation and refusals are those of the API, and are written once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

from channels.db import database_sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponseBase
from django.urls import Resolver404, resolve
from mcp.server.mcpserver.exceptions import ToolError

PREFIX = "/api/v1"


class Operations:
    """Call operations on behalf of one request to the MCP server, whose scope is `scope`."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope

    async def get(self, path: str, **query: Any) -> Any:
        """Return the decoded answer, text where it is no JSON. Raises ToolError with the API's reason."""
        return await self._call("GET", path, query, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the decoded answer. Raises ToolError with the API's reason."""
        return await self._call("POST", path, {}, body)

    async def _call(self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None) -> Any:
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        return await database_sync_to_async(self._answer)(method, path, asked, body)

    def _answer(self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None) -> Any:
        request = _request(self._scope, method, PREFIX + path, query, body)
        try:
            found = resolve(request.path_info)
            response: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
        except (Resolver404, Http404) as error:
            raise ToolError("There is no such thing here.") from error
        return _decoded(response)


def segment(text: str) -> str:
    """Return a text as one segment of a path, whatever it contains."""
    return quote(text, safe="") or "-"


def _request(
    scope: Mapping[str, Any], method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None
) -> ASGIRequest:
    data = json.dumps(body, allow_nan=False).encode() if body is not None else b""
    kept = {b"authorization", b"host"}
    # No cookies: the token alone says who asks, and a session would let other pages ask in its name.
    headers = [(name, value) for name, value in scope["headers"] if name.lower() in kept]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    inner = {
        **{name: scope[name] for name in ("client", "server", "scheme") if name in scope},
        "type": "http",
        "method": method,
        "path": path,
        "query_string": urlencode(query).encode(),
        "headers": headers,
    }
    return ASGIRequest(inner, io.BytesIO(data))


def _decoded(response: HttpResponseBase) -> Any:
    content = cast(bytes, response.content)  # type: ignore[attr-defined]  # no operation that we call streams
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    answer = json.loads(content) if is_json else content.decode()
    if response.status_code == 404:
        raise ToolError("There is no such thing here.")
    if response.status_code >= 400:
        raise ToolError(_reason(answer))
    return answer


def _reason(answer: Any) -> str:
    """Return the API's refusal in words."""
    return str(answer.get("detail", answer) if isinstance(answer, dict) else answer)
