"""Guard a KernelBench `ModelNew`: its kernel computes at the published inputs, the reference model elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

Layout = tuple[tuple[int, ...], torch.dtype]


def published_layouts(get_inputs: Callable[[], Sequence[Any]]) -> list[Layout | None]:
    """Return shape and dtype of each published input, None for what is no tensor. No memory is taken for them."""
    with torch.device("meta"):
        made = get_inputs()
    return [(tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else None for v in made]


def refused(model: torch.nn.Module, values: Sequence[Any], layouts: Sequence[Layout | None], device: str) -> str:
    """Return why the kernel must not compute this call, or nothing."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (*tensors, *model.parameters())):
        return "a gradient is wanted, and the kernel has no backward"
    if any(t.device.type != device or not t.is_contiguous() for t in tensors):
        return f"an input is not contiguous or not on {device}"
    if torch.is_autocast_enabled(device):
        return "autocast is on"
    if any(p.dtype.is_floating_point and p.dtype is not _dtype(layouts) for p in model.parameters()):
        return "the weights have another element type"
    found = [(tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else None for v in values]
    return "" if found == list(layouts) else f"shapes or element types that were not measured: {found}"


def reference_of(model: torch.nn.Module, reference: type, init: Sequence[Any]) -> torch.nn.Module:
    """Return the reference model with the weights of the kernel's. Raises RuntimeError where these do not fit."""
    with torch.random.fork_rng():
        made: torch.nn.Module = reference(*init)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    if set(own) != set(made.state_dict()):
        raise RuntimeError("the kernel's weights go by other names than the reference's, so torch cannot take over")
    made.train(model.training)
    return made


def call_reference(made: torch.nn.Module, model: torch.nn.Module, values: Sequence[Any]) -> Any:
    """Compute with the reference and the model's own weights, so that gradients reach those."""
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    return torch.func.functional_call(made, own, tuple(values))


def note(model: Any, reason: str) -> None:
    """Count a call that torch computes, and warn the first time for each reason."""
    if reason not in model.fallbacks:
        warnings.warn(f"torch computes instead of the kernel: {reason}", stacklevel=4)
    model.fallbacks[reason] = model.fallbacks.get(reason, 0) + 1


def _dtype(layouts: Sequence[Layout | None]) -> torch.dtype:
    """Return the element type of floating point that the published inputs have, single precision without any."""
    found = [layout[1] for layout in layouts if layout is not None and layout[1].is_floating_point]
    return found[0] if found else torch.float32
