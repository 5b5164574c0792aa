"""Derive input distributions for problems that bring only one: the published inputs scaled, shifted, heavier-tailed.

Each is a monotone function of the value alone that leaves zeros zero. So symmetric and triangular matrices, masks,
repeated and sorted values stay what they are. Only floating tensors with more than two different values change:
indices, masks and constants do not. Each variant has a free form and a bounded one, which stays within the range of
the published values, for references that take a logarithm or read probabilities. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch

from runners.problems.base import CallInputs
from runners.problems.distributions import cast_finite

SCALE = 3.0
SHIFT = 1.5
# Elements that are changed at a time: a tensor of GiB is not copied several times over.
PART = 1 << 24


class VariantForm(StrEnum):
    """Choose whether a variant may leave the range of the published values: `free` may, `bounded` may not."""

    FREE = "free"
    BOUNDED = "bounded"


@dataclass(frozen=True)
class Range:
    """Hold the least and largest value of a tensor, and the root mean square of its nonzero values, as scalar
    tensors."""

    low: torch.Tensor
    high: torch.Tensor
    spread: torch.Tensor


Change = Callable[[torch.Tensor, Range], torch.Tensor]


def changed(inputs: CallInputs, name: str, form: VariantForm) -> CallInputs:
    """Return the inputs with every changeable tensor changed. KeyError for an unknown variant."""
    change = VARIANTS[name][form]
    values = {key: _changed(value, change) for key, value in inputs.values.items()}
    return CallInputs(values, inputs.structure)


def changeable(value: object) -> bool:
    """Return whether a value is a floating tensor with finite values, more than two of them different."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or value.numel() < 3:
        return False
    low, high = _extremes(value)
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        return False
    return any(bool(((part != low) & (part != high)).any()) for part in _parts(_flat(value)))


def _changed(value: object, change: Change) -> object:
    """Return a changed tensor with the layout of the given one, made piece by piece."""
    if not isinstance(value, torch.Tensor) or not changeable(value):
        return value
    source = value if _is_dense(value) else value.contiguous()
    made, seen = torch.empty_like(source), _range(source)
    target = _flat(made)
    for start, part in zip(range(0, source.numel(), PART), _parts(_flat(source)), strict=True):
        # Zeros stay zero, so masks and triangular matrices stay what they are.
        new = torch.where(part == 0, 0.0, change(part, seen))
        target[start : start + len(new)] = cast_finite(new, value.dtype)
    return made


def _is_dense(value: torch.Tensor) -> bool:
    """Return whether the elements fill their memory without gaps or overlaps, in whatever order."""
    order = sorted(range(value.dim()), key=value.stride, reverse=True)
    return value.permute(order).is_contiguous()


def _flat(value: torch.Tensor) -> torch.Tensor:
    """Return the elements of a dense tensor in the order of its memory, without a copy; of others in their own
    order."""
    if not _is_dense(value):
        return value.flatten()
    return value.as_strided((value.numel(),), (1,))


def _parts(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield pieces in single precision."""
    return (flat[start : start + PART].float() for start in range(0, flat.numel(), PART))


def _extremes(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = [torch.stack(part.aminmax()) for part in _parts(_flat(value))]
    return torch.stack(found)[:, 0].min(), torch.stack(found)[:, 1].max()


def _range(value: torch.Tensor) -> Range:
    sums = [
        torch.stack([part.double().square().sum(), (part != 0).sum().double()]) for part in _parts(_flat(value))
    ]
    squares, count = torch.stack(sums).sum(0)
    return Range(*_extremes(value), (squares / count.clamp_min(1)).sqrt().float())


def _shifted(x: torch.Tensor, seen: Range) -> torch.Tensor:
    """Move values of one sign around zero, and others to one side."""
    one_sign = (seen.low >= 0) | (seen.high <= 0)
    return x + torch.where(one_sign, -(seen.low + seen.high) / 2, SHIFT * seen.spread)


def _shifted_within(x: torch.Tensor, seen: Range) -> torch.Tensor:
    return (x + seen.high) / 2


def _heavy_within(x: torch.Tensor, seen: Range) -> torch.Tensor:
    """Raise the share of the range to the fourth power: most values lie close to its lower end."""
    span = seen.high - seen.low
    return seen.low + span * ((x - seen.low) / span) ** 4


VARIANTS: dict[str, dict[VariantForm, Change]] = {
    "scaled": {VariantForm.FREE: lambda x, seen: x * SCALE, VariantForm.BOUNDED: lambda x, seen: x / SCALE},
    "shifted": {VariantForm.FREE: _shifted, VariantForm.BOUNDED: _shifted_within},
    "heavy_tailed": {VariantForm.FREE: lambda x, seen: x**3 / seen.spread**2, VariantForm.BOUNDED: _heavy_within},
}
