"""Split the arguments of a call into its tensors and a plain description of everything else, and join them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

_PLAIN = (bool, int, float, str, type(None))
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


class UnplainError(TypeError):
    """Report that a call takes or returns what is neither a tensor nor plain data. The message names its class."""


def split(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the description of a value as JSON data, and append its tensors in order. Raises UnplainError.

    Devices are all described alike, so that a program that moves to another device keeps its descriptions.
    """
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list):
        return [split(item, tensors) for item in value]
    if type(value) in (tuple, torch.Size):
        return {"tuple": [split(item, tensors) for item in value]}
    # Subclasses, such as the outputs of Hugging Face models, could not be rebuilt from their items alone.
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: split(item, tensors) for key, item in value.items()}}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": True}
    raise UnplainError(f"an object of class {type(value).__qualname__}")


def join(form: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the value that `split` described, with other tensors in place of its own."""
    if isinstance(form, list):
        return [join(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, inner),) = form.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "tuple":
        return tuple(join(item, tensors) for item in inner)
    if kind == "dict":
        return {key: join(item, tensors) for key, item in inner.items()}
    if kind == "torch":
        return getattr(torch, inner)
    return tensors[0].device


def key_of(form: Any) -> str:
    """Return a text that is equal for equal descriptions only: 1, 1.0 and True differ."""
    return json.dumps(form, sort_keys=True)


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """Return the axes from the slowest to the fastest in memory, or None if the tensor has holes or overlaps."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    if tensor.is_contiguous():
        return list(range(tensor.dim()))
    return order if tensor.permute(order).is_contiguous() else None


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes `order`."""
    undone = [0] * len(order)
    for position, axis in enumerate(order):
        undone[axis] = position
    return undone


def configuration(module: torch.nn.Module) -> list[Any]:
    """Return what a module computes with besides its tensors: classes, plain attributes and mode, by submodule."""
    found = []
    for name, part in module.named_modules():
        attributes = {key: _shown(value) for key, value in vars(part).items() if not key.startswith("_")}
        found.append([name, type(part).__qualname__, attributes])
    return found


def _shown(value: Any) -> Any:
    """Return an attribute as plain data; what is not plain goes by its name, such as an activation function."""
    try:
        tensors: list[torch.Tensor] = []
        form = split(value, tensors)
        return form if not tensors else "tensors"
    except UnplainError:
        return getattr(value, "__qualname__", type(value).__qualname__)
