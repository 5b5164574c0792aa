"""Rebuild nested call arguments from flat named values, and flatten results. Standard library only.

A tree is one of `{"value": name}`, `{"list": [tree…]}`, `{"tuple": [tree…]}`, `{"dict": [[key, tree]…]}` and
`{"object": {attribute: tree}}`. The last one is rebuilt as a namespace, so that attribute access works without the
class. The structure of a call is the list of its positional arguments' trees.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

# A hostile result may be nested without end.
DEEPEST = 12


class StructureError(ValueError):
    """Report that a value can't travel to another process as bytes and JSON, or that a tree is malformed."""


def arguments_of(structure: list[dict[str, Any]] | None, values: dict[str, Any]) -> list[Any]:
    """Return the positional arguments that a structure makes of the values; with None, each value is one argument."""
    if structure is None:
        return list(values.values())
    return [_rebuild(tree, values) for tree in structure]


def tensors_in(result: Any, depth: int = 0) -> list[Any]:
    """Return a result as a flat list in order.

    Tuples, lists and dict values are opened, None is skipped; anything else stands for itself, whatever it is (the
    caller judges types). Containers are read past any method that a subclass overrides, so that looking at a result
    does no work for it.
    """
    if depth > DEEPEST:
        raise StructureError(f"a result nested deeper than {DEEPEST}")
    if isinstance(result, dict):
        items = list(dict.values(result))
    elif isinstance(result, list | tuple):
        items = list(list.__iter__(result) if isinstance(result, list) else tuple.__iter__(result))
    else:
        return [] if result is None else [result]
    return [leaf for item in items for leaf in tensors_in(item, depth + 1)]


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
