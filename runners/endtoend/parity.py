"""Compare what a program returned with and without kernels."""

from __future__ import annotations

from typing import Any

import torch

# The relative error of a whole result by its element type: what changing the order of additions costs deep models.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
LARGEST = 256 << 20


def tensors_in(value: Any, where: str = "result", found: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
    """Return the tensors of a nested result by their place, at most LARGEST bytes of each."""
    found = {} if found is None else found
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        if value.numel() * value.element_size() <= LARGEST:
            found[where] = value.detach().to("cpu", copy=True)
    elif isinstance(value, dict):
        for name, item in value.items():
            tensors_in(item, f"{where}[{name!r}]", found)
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            tensors_in(item, f"{where}[{number}]", found)
    return found


def error_of(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[float, str]:
    """Return the largest error relative to its tolerance, 1 at the limit, and where it lies.

    Another set of results, shape or type, and values that are finite on one side only, are infinitely wrong.
    """
    if set(ours) != set(theirs):
        return float("inf"), f"other results: {', '.join(sorted(set(ours) ^ set(theirs))[:3])}"
    worst, where = 0.0, ""
    for name, value in ours.items():
        error = _error(value, theirs[name])
        if error > worst or not where:
            worst, where = error, name
    return worst, where


def _error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if torch.equal(ours, theirs):
        return 0.0
    if not ours.dtype.is_floating_point:
        return float("inf")
    mine, other = ours.double(), theirs.double()
    finite = torch.isfinite(mine)
    if not torch.equal(finite, torch.isfinite(other)):
        return float("inf")
    norm = float(other[finite].norm()) or 1.0
    return float((mine[finite] - other[finite]).norm()) / norm / TOLERANCES.get(ours.dtype, 0.2)
