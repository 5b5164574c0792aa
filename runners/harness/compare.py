"""Element-wise comparison of one output with the higher-precision expectation. Runs in the oracle process."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runners.problems.base import Tolerance


@dataclass(frozen=True)
class Comparison:
    """`error` says which element is wrong and by how much, or None. Maxima over the elements where both values are
    finite; the relative error is taken where |expected| exceeds the absolute tolerance."""

    error: str | None
    max_abs_error: float
    max_rel_error: float


def compare(output: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """|output - expected| <= atol + rtol * |expected| for every element, and no unexpected NaN or infinity.

    An infinity is expected where the exact value does not fit into the output's dtype.
    """
    if tuple(output.shape) != tuple(expected.shape):
        return Comparison(f"shape {list(output.shape)}, expected {list(expected.shape)}", 0.0, 0.0)
    got = output.to(torch.float64)
    exact = expected.to(torch.float64)
    representable = exact.to(output.dtype).to(torch.float64) if output.dtype.is_floating_point else exact
    difference = (got - exact).abs()
    within = difference <= tolerance.atol + tolerance.rtol * exact.abs()
    special = ~torch.isfinite(representable) | ~torch.isfinite(got)
    same_special = (got == representable) | (got.isnan() & exact.isnan())
    right = torch.where(special, same_special, within)
    maxima = _maxima(difference, exact, special, tolerance)
    return Comparison(_describe(right, got, exact, difference), *maxima)


def unexpected_special(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
    """A complaint about the first output that holds NaN or infinity where all of what is expected is finite: what a
    problem's own check lets pass must still be numbers."""
    for number, (output, exact) in enumerate(zip(outputs, expected, strict=True)):
        if output.dtype.is_floating_point and torch.isfinite(exact.double()).all():
            bad = output.numel() - int(torch.isfinite(output.float()).sum())
            if bad:
                return f"output {number}: {bad} of {output.numel()} elements are NaN or infinite"
    return None


def _maxima(
    difference: torch.Tensor, exact: torch.Tensor, special: torch.Tensor, tolerance: Tolerance
) -> tuple[float, float]:
    if difference.numel() == 0:
        return 0.0, 0.0
    finite = torch.where(special, 0.0, difference)
    scale = exact.abs()
    relative = torch.where(special | (scale <= tolerance.atol), 0.0, finite / scale)
    return float(finite.max()), float(relative.nan_to_num(0.0, 0.0, 0.0).max())


def _describe(right: torch.Tensor, got: torch.Tensor, exact: torch.Tensor, difference: torch.Tensor) -> str | None:
    wrong = right.numel() - int(right.sum())
    if wrong == 0:
        return None
    badness = torch.where(right, -1.0, difference.nan_to_num(torch.inf, torch.inf, torch.inf))
    flat = int(badness.argmax())
    where = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(flat), right.shape))
    share = f"{wrong} of {right.numel()} elements wrong"
    found, wanted = float(got.flatten()[flat]), float(exact.flatten()[flat])
    return f"{share}; worst at [{where}]: got {found:.6g}, expected {wanted:.6g}"
