"""Nested call arguments as named flat values plus a JSON description, and back.

A tree is one of `{"value": name}`, `{"list": [tree…]}`, `{"tuple": [tree…]}`, `{"dict": [[key, tree]…]}` and
`{"object": {attribute: tree}}`; the last one is rebuilt as a namespace, so that attribute access goes on working
without the class. The structure of a call is the list of its positional arguments' trees.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeGuard

from runners.problems.base import CallInputs

if TYPE_CHECKING:
    import torch

DEEPEST = 12
_PLAIN = (bool, int, float, str, type(None))
_KEYS = (str, int, bool)


class StructureError(ValueError):
    """A value that cannot travel to another process as bytes and JSON."""


def flatten(arguments: list[Any] | tuple[Any, ...]) -> CallInputs:
    """Positional arguments as CallInputs; values are named after their path (`0`, `1.weight`, `1.0`).

    Raises StructureError for anything but tensors, plain values and containers of these.
    """
    values: dict[str, Any] = {}
    trees = [_flatten(argument, str(n), values, 0) for n, argument in enumerate(arguments)]
    if all("value" in tree for tree in trees):
        return CallInputs(values)
    return CallInputs(values, trees)


def positional(inputs: CallInputs) -> list[Any]:
    """The positional arguments that `inputs` describe."""
    if inputs.structure is None:
        return list(inputs.values.values())
    return [_rebuild(tree, inputs.values) for tree in inputs.structure]


def tensors_in(result: Any) -> list[Any]:
    """What a call returned, as a flat list in order: tuples, lists and dict values are opened, None is skipped;
    anything else stands for itself, whatever it is (the referee judges types)."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [leaf for item in result for leaf in tensors_in(item)]
    return [] if result is None else [result]


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether it is a torch tensor, told without importing torch."""
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


def _rebuild(tree: dict[str, Any], values: dict[str, Any]) -> Any:
    ((kind, content),) = tree.items()
    match kind:
        case "value":
            return values[content]
        case "list":
            return [_rebuild(item, values) for item in content]
        case "tuple":
            return tuple(_rebuild(item, values) for item in content)
        case "dict":
            return {key: _rebuild(item, values) for key, item in content}
        case "object":
            return SimpleNamespace(**{name: _rebuild(item, values) for name, item in content.items()})
    raise StructureError(f"unknown kind of tree {kind!r}")
