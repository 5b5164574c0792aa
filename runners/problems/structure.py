"""Nested call arguments as named flat values plus a JSON description; the way back is the candidate's
(`runners.candidate.structure`, where the trees are described)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeGuard

from runners.candidate.structure import DEEPEST, StructureError, arguments_of, tensors_in
from runners.problems.base import CallInputs

if TYPE_CHECKING:
    import torch

__all__ = ["StructureError", "flatten", "is_tensor", "positional", "tensors_in"]
_PLAIN = (bool, int, float, str, type(None))
# JSON keys are strings, so structures store keys as values (see `runners.candidate.structure`).
_KEYS = (str, int, bool)


def flatten(arguments: list[Any] | tuple[Any, ...]) -> CallInputs:
    """Convert positional arguments to CallInputs; values are named after their path (`0`, `1.weight`, `1.0`).

    Raises StructureError for anything but tensors, plain values and containers of these.
    """
    values: dict[str, Any] = {}
    trees = [_flatten(argument, str(n), values, 0) for n, argument in enumerate(arguments)]
    if all("value" in tree for tree in trees):
        return CallInputs(values)
    return CallInputs(values, trees)


def positional(inputs: CallInputs) -> list[Any]:
    """Return the positional arguments that `inputs` describe."""
    return arguments_of(inputs.structure, inputs.values)


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a torch tensor, without importing torch."""
    return any(cls.__module__ == "torch" and cls.__name__ == "Tensor" for cls in type(value).__mro__)


def _flatten(value: Any, path: str, values: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        raise StructureError(f"{path}: nested deeper than {DEEPEST}")
    if is_tensor(value) or isinstance(value, _PLAIN):
        values[path] = value
        return {"value": path}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_flatten(item, f"{path}.{n}", values, depth + 1) for n, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, _KEYS) for key in value):
        return {"dict": [[k, _flatten(v, f"{path}.{k}", values, depth + 1)] for k, v in value.items()]}
    return {"object": _flatten_object(value, path, values, depth)}


def _flatten_object(value: Any, path: str, values: dict[str, Any], depth: int) -> dict[str, Any]:
    if not (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        raise StructureError(f"{path}: a {type(value).__name__} cannot be sent to a candidate")
    fields = [field.name for field in dataclasses.fields(value)]
    return {name: _flatten(getattr(value, name), f"{path}.{name}", values, depth + 1) for name in fields}
