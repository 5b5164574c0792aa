"""Judge outputs of a reference that computes in TF32 itself. Needs torch.

PyTorch runs convolutions and recurrent layers of float32 in TF32 on NVIDIA's GPUs unless told otherwise. Such a
reference is farther from the exact result than the published tolerance permits (1e-4 for KernelBench), so that only its
own result can be expected. A kernel that computes in full float32 then differs from it in thousands of elements, and so
does one in TF32 that rounds otherwise. Both are right if they are about as close to the reference in full float32 as
the reference's own result is.

Notation, with the tolerance `atol + rtol * |exact|` of an element as the unit:

| symbol | meaning | in the code |
|---|---|---|
| k | error of the reference's own worst element | `excess` |
| ε₀ | its relative error by the norm, `runners.problems.compare` | `own` |
| max(1, FACTOR · k) | permitted error of an element | `_share` |
| max(φ, FACTOR · ε₀) | permitted error of a norm, φ as in `runners.problems.compare` | `_norms_serve` |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runners.problems.compare import FLOORS, Comparison, chunk_bytes_on, chunks, compare, loss_of
from runners.problems.tolerance import Loss, Tolerance

# Between a kernel in TF32 that cuts factors off instead of rounding them, as Triton's `tl.dot` does (at most 3.0 times
# the reference's error in the worst element), and one in bfloat16 (at least 7.3 times): measured on an H200 for 48
# official problems of KernelBench.
FACTOR = 5.0
# A reference that loses more by the norm is ill-conditioned rather than imprecise. Ten times what is always permitted.
MOST_LOSS = 10 * FLOORS["float32"]


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute products and convolutions of float32 in full precision inside the block.

    Raises RuntimeError if the program has set precisions by torch's newer settings, which exclude these.
    """
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def as_close(
    outputs: list[torch.Tensor],
    own: list[torch.Tensor],
    exact: list[torch.Tensor],
    tolerances: list[Tolerance],
) -> Comparison | None:
    """Compare outputs with those in full precision, to which they must be about as close as the reference's own result.

    Return None if one is not, or if there is nothing to learn because the reference is as precise itself. If the
    reference is ill-conditioned, outputs must be within the published tolerance.
    """
    found = []
    for output, result, full, tolerance in zip(outputs, own, exact, tolerances, strict=True):
        loss = loss_of(result, full)
        if loss is None or output.shape != full.shape or torch.equal(result, full):
            return None
        compared = compare(output, full, tolerance, norms=False, share=_share(result, full, tolerance, loss))
        if compared.error or not _norms_serve(compared.norms, loss):
            return None
        found.append(compared)
    return Comparison(None, max(c.max_abs_error for c in found), max(c.max_rel_error for c in found))


def excess(value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> float:
    """Return the error of the worst element as a multiple of its tolerance; NaN if a value is not a number."""
    got, wanted = value.contiguous().flatten(), exact.contiguous().flatten()
    largest = []
    for chunk in chunks(got.numel(), 1, chunk_bytes_on(got.device)):
        part = slice(chunk.start, chunk.start + chunk.size)
        limit = wanted[part].abs() * tolerance.rtol + tolerance.atol
        largest.append(((got[part] - wanted[part]).abs_() / limit).max())
    return float(torch.stack(largest).max()) if largest else 0.0


def _share(result: torch.Tensor, full: torch.Tensor, tolerance: Tolerance, loss: Loss) -> float:
    """Return how many published tolerances an element may be off."""
    most = FACTOR * excess(result, full, tolerance) if loss.overall <= MOST_LOSS else 0.0
    return most if 1.0 < most < math.inf else 1.0


def _norms_serve(found: Loss | None, own: Loss) -> bool:
    """Return whether an output loses at most `FACTOR` times what the reference does, as a whole and in its rows."""
    if found is None:
        return False
    floor = FLOORS["float32"]
    return found.overall <= max(FACTOR * own.overall, floor) and found.worst_row <= max(
        FACTOR * own.worst_row, floor
    )
