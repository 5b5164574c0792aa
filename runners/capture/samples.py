"""Keep what is needed to make inputs like those that a program had: quantiles, ranges, or the values themselves."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import torch

# Enough of a tensor to know its distribution; looking at all of it would take as long as computing with it.
LOOKED_AT = 1 << 16
QUANTILES = 33
# A problem's file may have 512 KiB, and the text of a sample is a third longer than its bytes.
SAVED_BYTES = 256 << 10


@dataclass(frozen=True)
class Sample:
    """Hold the values of one tensor as far as they are kept.

    `values` is the tensor itself, compressed, where it is kept; otherwise floats have `quantiles`, and integers and
    booleans the range in which they lay. `obstacle` says why no inputs like it can be made.
    """

    quantiles: tuple[float, ...] = ()
    low: int = 0
    high: int = 0
    values: str = ""
    obstacle: str = ""


def sample_of(tensor: torch.Tensor, *, keep: bool) -> Sample:
    """Look at a tensor. Floats are kept themselves only if `keep` and if they are small; small integers always are."""
    size = tensor.numel() * tensor.element_size()
    if tensor.numel() == 0:
        return Sample(obstacle="an empty tensor")
    if not tensor.dtype.is_floating_point:
        if tensor.dtype.is_complex:
            return Sample(obstacle=f"{tensor.dtype} is not a type that kernels take")
        low, high = (int(value) for value in tensor.to(torch.int64).aminmax())
        return Sample(low=low, high=high, values=_packed(tensor) if size <= SAVED_BYTES else "")
    looked = _some(tensor).to("cpu", torch.float64)
    if not bool(torch.isfinite(looked).all()):
        if size > SAVED_BYTES:
            return Sample(obstacle="holds infinities or NaN and is too large to be saved")
        return Sample(values=_packed(tensor))
    levels = torch.linspace(0, 1, QUANTILES, dtype=torch.float64)
    quantiles = tuple(float(f"{value:.6g}") for value in torch.quantile(looked, levels).tolist())
    return Sample(quantiles, values=_packed(tensor) if keep and size <= SAVED_BYTES else "")


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Return at most LOOKED_AT elements, drawn from all over the tensor without copying it."""
    if tensor.numel() <= LOOKED_AT:
        return tensor.detach().reshape(-1)
    # A generator of its own: the program's random numbers must stay those that it would have drawn anyway.
    generator = torch.Generator().manual_seed(0)
    where = [torch.randint(extent, (LOOKED_AT,), generator=generator).to(tensor.device) for extent in tensor.shape]
    return tensor.detach()[tuple(where)]


def _packed(tensor: torch.Tensor) -> str:
    """Return the bytes of a tensor in the order of its axes, compressed, as text."""
    plain = tensor.detach().to("cpu").contiguous()
    data = bytes(plain.view(-1).view(torch.uint8).tolist()) if plain.numel() else b""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def literal(sample: Sample) -> Any:
    """Return the sample as what `fill_captured` of a written problem reads."""
    if sample.values:
        return sample.values
    return list(sample.quantiles) if sample.quantiles else [sample.low, sample.high]
