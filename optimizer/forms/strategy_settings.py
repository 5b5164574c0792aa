"""Derive form fields from a strategy's pydantic settings: types, limits, defaults and descriptions.

Nested settings become dotted names: `settings.tune.sampler`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from django import forms
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from optimizer.text.complaints import complaints_of

PREFIX = "settings."


def settings_fields(cls: type[BaseModel], prefix: str = PREFIX) -> dict[str, forms.Field]:
    """Return one form field per setting, by dotted name."""
    found: dict[str, forms.Field] = {}
    for name, info in cls.model_fields.items():
        kind, optional = _unwrap(info.annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= settings_fields(kind, f"{prefix}{name}.")
        elif field := _field(name, kind, optional, info):
            found[f"{prefix}{name}"] = field
    return found


def settings_values(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested settings of a form's cleaned values. An empty field keeps its default."""
    values: dict[str, Any] = {}
    for name, value in cleaned.items():
        if not name.startswith(PREFIX) or value is None or value == "":
            continue
        *path, last = name.removeprefix(PREFIX).split(".")
        # Dotted names become nested dictionaries, one level per part.
        place = values
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return values


def settings_initial(values: Mapping[str, Any], prefix: str = PREFIX) -> Iterator[tuple[str, Any]]:
    """Yield the form values of stored settings, the inverse of `settings_values`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from settings_initial(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def settings_errors(cls: type[BaseModel], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the strategy's own complaints as (field name, message)."""
    try:
        cls.model_validate(dict(values))
    except ValidationError as error:
        return [(PREFIX + complaint.place, complaint.words) for complaint in complaints_of(error)]
    return []


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """Return the type without None, and whether None was allowed."""
    if get_origin(annotation) in (Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        return (options[0] if len(options) == 1 else str), len(options) < len(get_args(annotation))
    return annotation, False


def _field(name: str, kind: Any, optional: bool, info: FieldInfo) -> forms.Field | None:
    common: dict[str, Any] = {
        "label": name.replace("_", " ").capitalize(),
        "help_text": info.description or "",
        "initial": _default(info),
        "required": False,
    }
    if kind is bool:
        return forms.BooleanField(**common)
    if choices := _choices(kind):
        return forms.ChoiceField(choices=[("", "Default"), *choices] if optional else choices, **common)
    if kind is int:
        return forms.IntegerField(**limits_of(info, 1), **common)
    if kind is float:
        return forms.FloatField(**limits_of(info, 0), **common)
    return forms.CharField(max_length=400, **common) if kind is str else None


def _choices(kind: Any) -> list[tuple[str, str]]:
    if get_origin(kind) is Literal:
        return [(str(value), str(value).replace("_", " ").capitalize()) for value in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [(str(member.value), str(member.value)) for member in kind]
    return []


def limits_of(info: FieldInfo, step: int) -> dict[str, Any]:
    """Return minimum and maximum. An exclusive limit is moved by `step`; for floats pydantic refuses the limit
    itself.
    """
    limits: dict[str, Any] = {}
    for limit in info.metadata:
        if isinstance(limit, Ge):
            limits["min_value"] = limit.ge
        elif isinstance(limit, Gt):
            limits["min_value"] = limit.gt + step  # type: ignore[operator]
        elif isinstance(limit, Le):
            limits["max_value"] = limit.le
        elif isinstance(limit, Lt):
            limits["max_value"] = limit.lt - step  # type: ignore[operator]
    return limits


def _default(info: FieldInfo) -> Any:
    default = info.get_default(call_default_factory=True, validated_data={})
    return default.value if isinstance(default, Enum) else default
