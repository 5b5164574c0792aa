"""Further input distributions for problems that bring only one: the published inputs scaled, shifted, heavier-tailed.

Each is a monotone function of the value alone that leaves zeros zero. So symmetric and triangular matrices, masks,
repeated and sorted values stay what they are. Only floating tensors with more than two different values change:
indices, masks and constants do not. Each variant has a free form and a bounded one, which stays within the range of
the published values, for references that take a logarithm or read probabilities. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import torch

from runners.problems.base import CallInputs
from runners.problems.distributions import cast_finite

SCALE = 3.0
SHIFT = 1.5


class Form(StrEnum):
    """`free` may leave the range of the published values, `bounded` may not."""

    FREE = "free"
    BOUNDED = "bounded"


Change = Callable[[torch.Tensor], torch.Tensor]


def changed(inputs: CallInputs, name: str, form: Form) -> CallInputs:
    """Return the inputs with every changeable tensor changed. KeyError for an unknown variant."""
    change = VARIANTS[name][form]
    values = {key: _changed(value, change) for key, value in inputs.values.items()}
    return CallInputs(values, inputs.structure)


def changeable(value: object) -> bool:
    """Tell whether a value is a floating tensor with finite values, more than two of them different."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or value.numel() < 3:
        return False
    wide = value.float()
    low, high = wide.min(), wide.max()
    return bool(torch.isfinite(low) & torch.isfinite(high) & ((wide != low) & (wide != high)).any())


def _changed(value: object, change: Change) -> object:
    if not isinstance(value, torch.Tensor) or not changeable(value):
        return value
    wide = value.float()
    made = cast_finite(torch.where(wide == 0, 0.0, change(wide)), value.dtype)
    return torch.empty_like(value).copy_(made)


def _spread(x: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the values that are not zero."""
    return (x.square().sum() / (x != 0).sum().clamp_min(1)).sqrt()


def _shifted(x: torch.Tensor) -> torch.Tensor:
    """Centre values of one sign; move others to one side."""
    one_sign = (x.min() >= 0) | (x.max() <= 0)
    return x + torch.where(one_sign, -(x.min() + x.max()) / 2, SHIFT * _spread(x))


def _shifted_within(x: torch.Tensor) -> torch.Tensor:
    return (x + x.max()) / 2


def _heavy_within(x: torch.Tensor) -> torch.Tensor:
    """Raise the share of the range to the fourth power: most values lie close to its lower end."""
    low, span = x.min(), x.max() - x.min()
    return low + span * ((x - low) / span) ** 4


VARIANTS: dict[str, dict[Form, Change]] = {
    "scaled": {Form.FREE: lambda x: x * SCALE, Form.BOUNDED: lambda x: x / SCALE},
    "shifted": {Form.FREE: _shifted, Form.BOUNDED: _shifted_within},
    "heavy_tailed": {Form.FREE: lambda x: x**3 / _spread(x) ** 2, Form.BOUNDED: _heavy_within},
}
