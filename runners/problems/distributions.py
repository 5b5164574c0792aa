"""Fill tensors with generic input distributions, or with the fixed ones that an argument may ask for. Needs torch.

A distribution fills a float64 tensor from a generator; the caller casts it to the argument's dtype, clipped to its
finite range. Integers are filled with 0…7 whatever the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

Fill = Callable[[Sequence[int], torch.Generator], torch.Tensor]


def fill(name: str, shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return a row-major tensor of that shape and dtype, filled by the named distribution. Raises KeyError if
    unknown."""
    if not dtype.is_floating_point:
        high = 2 if dtype is torch.bool else 8
        return torch.randint(high, tuple(shape), generator=generator).to(dtype)
    return cast_finite(DISTRIBUTIONS[name](shape, generator), dtype)


def cast_finite(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert values to `dtype`, clipped so that the cast makes nothing infinite or NaN."""
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype)


def _normal(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=generator)


def _large_range(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Draw values of either sign with magnitudes log-uniform over 2^-8 … 2^8."""
    exponent = torch.rand(tuple(shape), generator=generator) * 16 - 8
    return torch.exp2(exponent) * torch.where(torch.rand(tuple(shape), generator=generator) < 0.5, -1.0, 1.0)


def _near_constant(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Draw one plus a thousandth of noise: differences cancel, sums are long and one-sided."""
    return 1.0 + 1e-3 * torch.randn(tuple(shape), generator=generator)


def _adversarial(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Draw neighbours of nearly equal size and opposite sign: sums cancel, so errors of low precision stay."""
    values = 32.0 + torch.randn(tuple(shape), generator=generator)
    signs = 1.0 - 2.0 * (torch.arange(math.prod(shape)) % 2)
    return values * signs.reshape(tuple(shape))


def _positive(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Draw uniformly from [1/2, 3/2): scales and weights that must not vanish."""
    return 0.5 + torch.rand(tuple(shape), generator=generator)


def _uniform(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tuple(shape), generator=generator)


def _ones(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.ones(tuple(shape))


DISTRIBUTIONS: dict[str, Fill] = {
    "normal": _normal,
    "large_range": _large_range,
    "near_constant": _near_constant,
    "adversarial": _adversarial,
    "standard_normal": _normal,
    "positive": _positive,
    "uniform": _uniform,
    "ones": _ones,
}
