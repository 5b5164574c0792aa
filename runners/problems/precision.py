"""Judge outputs of a reference that computes in TF32 itself. Needs torch.

PyTorch runs convolutions and recurrent layers of float32 in TF32 on NVIDIA's GPUs unless told otherwise. Such a
reference is farther from the exact result than the published tolerance permits (1e-4 for KernelBench), so that only its
own result can be expected. A kernel that computes in full float32 then differs from it in thousands of elements, and so
does one in TF32 that rounds otherwise. Both are right if they are about as close to the reference in full float32 as
the reference's own result is.

Three limits define "about as close", because no single one suffices. If the reference has a jump, as `hardshrink` has,
TF32 pushes a few elements over it, and its worst error is the size of the jump. A limit on each element would then
permit almost anything, and the Euclidean norm grows only with the square root of the error. The mean error grows with
the error itself, but a few wrong elements hardly change it.

Notation, with the tolerance `atol + rtol * |exact|` of an element as the unit:

| symbol | meaning | in the code |
|---|---|---|
| k, m | error of the worst element, mean error | `Errors.worst`, `Errors.mean` |
| ε₀ | relative error of the norm, see `runners.problems.compare` | `own` |
| F | `PUBLISHED.factor`, or `VARIANT.factor` for variants of the inputs | `Leniency.factor` |
| F · m | permitted mean error | `_is_as_close` |
| c = max(1, F · min(k, SPREAD · m)) | permitted error of an element | `_is_as_close` |
| F · #{own errors > c} | elements that may be farther off | `_is_as_close` |
| max(φ, F · ε₀) | permitted error of a norm, φ as in `runners.problems.compare` | `_norms_serve` |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from runners.problems.compare import FLOORS, Comparison, chunk_bytes_on, chunks, compare, loss_of
from runners.problems.tolerance import Loss, Tolerance


@dataclass(frozen=True)
class Leniency:
    """Hold how far off an output may be, as a multiple of the reference's own error.

    If the relative error of the reference's norm exceeds `most_loss`, no output can be judged this way.
    """

    factor: float
    most_loss: float = math.inf


# Between a kernel in TF32 that cuts factors off instead of rounding them, as Triton's `tl.dot` does (at most 3.0 times
# the reference's error in the worst element), and one in bfloat16 (at least 7.3 times): measured on an H200 for 48
# official problems of KernelBench. The mean errors of products, and the elements that cross a jump, are 2.6 and 7.8
# times the reference's, with TF32 imitated on a CPU.
PUBLISHED = Leniency(5.0)
# For variants of the inputs, which are there to show gross errors. On them TF32 that cuts factors off has up to 39
# times the reference's mean error: what is cut adds up where all values have one sign. With TF32 imitated on a CPU,
# all of 271 variants of official problems accept it, and none accepts zeros or the mean of all elements. What is
# permitted is relative to what the reference loses, which must be little.
VARIANT = Leniency(50.0, most_loss=1e-3)
# Elements of the same scale scatter up to about seven times their mean error; channels differ in scale, and clamped
# elements have no error. In all but one of 93 official problems the worst element is 2 to 58 times the mean.
SPREAD = 32.0
# A reference that loses more by the norm is ill-conditioned rather than imprecise. Ten times what is always permitted.
MOST_LOSS = 10 * FLOORS["float32"]


@dataclass(frozen=True)
class Errors:
    """Hold the mean and the worst error of an output's elements, in tolerances; NaN if a value is not a number."""

    mean: float
    worst: float


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute products, convolutions and recurrent layers of float32 in full precision inside the block.

    torch has older and newer settings for the same, and refuses to read an older one that disagrees with the newer. So
    an older one that can be read is changed first, and what newer ones were is restored last.
    """
    cudnn: Any = torch.backends.cudnn
    layers: list[Any] = [torch.backends.cuda.matmul]
    if hasattr(cudnn, "conv"):  # since torch 2.9
        layers += [cudnn.conv, cudnn.rnn]
    newer = [(layer, layer.fp32_precision) for layer in layers if hasattr(layer, "fp32_precision")]
    with ExitStack() as restored:
        for layer, value in newer:
            restored.callback(setattr, layer, "fp32_precision", value)
        with suppress(RuntimeError):
            restored.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        with suppress(RuntimeError):
            restored.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
            cudnn.allow_tf32 = False
        for layer, _ in newer:
            layer.fp32_precision = "ieee"
        yield


def as_close(
    outputs: list[torch.Tensor],
    own: list[torch.Tensor],
    exact: list[torch.Tensor],
    tolerances: list[Tolerance],
    leniency: Leniency = PUBLISHED,
) -> Comparison | None:
    """Compare outputs with those in full precision, to which they must be about as close as the reference's own result.

    "About as close" is no more than `leniency.factor` times as far off. An output that is the same in both is compared
    with it as published. Return None if an output is wrong, if the reference loses more than `leniency` permits, or if
    all outputs are the same, so that there is nothing to learn.
    """
    if all(map(torch.equal, own, exact)):
        return None
    found = []
    for output, result, full, tolerance in zip(outputs, own, exact, tolerances, strict=True):
        compared = _compared(output, result, full, tolerance, leniency)
        if compared is None:
            return None
        found.append(compared)
    return Comparison(None, max(c.max_abs_error for c in found), max(c.max_rel_error for c in found))


def _compared(
    output: torch.Tensor, result: torch.Tensor, full: torch.Tensor, tolerance: Tolerance, leniency: Leniency
) -> Comparison | None:
    """Return the comparison of one output, or None if it is wrong."""
    if output.shape != full.shape or result.shape != full.shape:
        return None
    loss = loss_of(result, full)
    if loss is None or torch.equal(result, full):
        compared = compare(output, result, tolerance, loss)
        return compared if compared.error is None else None
    if loss.overall > leniency.most_loss:
        return None
    compared = compare(output, full, tolerance, norms=False)
    if not _norms_serve(compared.norms, loss, leniency.factor):
        return None
    return compared if _is_as_close(output, result, full, tolerance, loss, leniency.factor) else None


def errors_of(value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> Errors:
    """Return how far elements are off. Only the figures of each chunk are kept, not its errors."""
    figures = [
        torch.stack((part.sum(dtype=torch.float64), part.max().double()))
        for part in _multiples(value, exact, tolerance)
    ]
    if not figures:
        return Errors(0.0, 0.0)
    sums, worst = torch.stack(figures).unbind(1)
    return Errors(float(sums.sum()) / value.numel(), float(worst.max()))


def _is_as_close(
    output: torch.Tensor,
    result: torch.Tensor,
    full: torch.Tensor,
    tolerance: Tolerance,
    loss: Loss,
    factor: float,
) -> bool:
    """Return whether an output's elements are off by no more than the reference's own are, on average and each."""
    own = errors_of(result, full, tolerance)
    if not errors_of(output, full, tolerance).mean <= factor * own.mean:
        return False
    if loss.overall > MOST_LOSS:
        return _beyond(output, full, tolerance, 1.0) == 0
    share = max(1.0, factor * min(own.worst, SPREAD * own.mean))
    return _beyond(output, full, tolerance, share) <= factor * _beyond(result, full, tolerance, share)


def _beyond(value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance, share: float) -> int:
    """Return how many elements are off by more than so many tolerances, or are not numbers."""
    return sum(int((~(part <= share)).sum()) for part in _multiples(value, exact, tolerance))


def _multiples(value: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> Iterator[torch.Tensor]:
    """Return the errors of a chunk's elements as multiples of their tolerances, chunk by chunk."""
    got, wanted = value.contiguous().flatten(), exact.contiguous().flatten()
    for chunk in chunks(got.numel(), 1, chunk_bytes_on(got.device)):
        part = slice(chunk.start, chunk.start + chunk.size)
        limit = wanted[part].abs() * tolerance.rtol + tolerance.atol
        yield (got[part] - wanted[part]).abs_() / limit


def _norms_serve(found: Loss | None, own: Loss, factor: float) -> bool:
    """Return whether an output loses at most the factor times what the reference does, as a whole and in its rows."""
    if found is None:
        return False
    floor = FLOORS["float32"]
    return found.overall <= max(factor * own.overall, floor) and found.worst_row <= max(
        factor * own.worst_row, floor
    )
