"""Compare one output with the higher-precision expectation, element by element and by its norm. Needs torch.

Both comparisons go through the output in chunks, so that many GiB of output need no more than `CHUNK_BYTES` of
temporaries. Element by element the problem's declared tolerance decides. It says nothing if the outputs are smaller
than the tolerance, so the error is also measured against the output's own norm, over the whole output and over its
rows. The permitted error follows from what the reference itself loses in its own precision (`Loss`, `allowed`).

Notation:

| symbol | meaning | in the code |
|---|---|---|
| y, ŷ | an element as computed; its value in higher precision | `value`, `reference` |
| ‖·‖₂ | the Euclidean norm over the whole output or over one row | `norms`, `errors` (squares) |
| ε = ‖y − ŷ‖₂ / ‖ŷ‖₂ | relative error of a norm | `Loss.overall`, `Loss.worst_row` |
| ε₀ | that of the reference in its own precision | `own` |
| φ | error that is always permitted for a dtype | `FLOORS` |
| max(8 ε₀, φ) | permitted error of the whole output | `allowed().overall` |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from runners.problems.tolerance import Loss, Tolerance

# On a GPU, as a share of its memory and at most. Launching kernels should cost nothing in comparison: an H100 compares
# 6 GiB in 0.29 s with chunks of 256 MiB, in 0.09 s with 1 GiB, and in 0.07 s with 2 GiB.
CHUNK_SHARE, CHUNK_BYTES = 1 / 64, 1 << 30
# Temporaries of this size stay in the last-level cache.
CPU_CHUNK_BYTES = 8 << 20
# Temporaries of one element at the peak: eight values in double precision and the masks.
ELEMENT_BYTES = 80
# Where single precision serves: no square of a chunk's largest value overflows or vanishes.
SINGLE_RANGE = (1e-12, 1e12)
# Rows are the last axis, or as many trailing axes as make this many elements: a relative error of a few elements says
# little, because any of them may be close to zero.
SHORTEST_ROW = 64
# Three bits more than the reference itself loses.
LOSS_FACTOR = 8.0
# A single row varies more than the whole output.
ROW_FACTOR = 2.0
# How much more is allowed where the reference cannot be run in double precision, so that nobody knows its loss.
UNKNOWN_FACTOR = 10.0
# Relative error of the norm that is always allowed, by the output's dtype. For float32 it lies between a matrix product
# in TF32 (measured 3e-4) and one in bfloat16 (2e-3); for the others at about four times the unit roundoff, because
# intermediate values may be rounded to the same dtype.
FLOORS = {
    "float64": 1e-6,
    "float32": 1e-3,
    "float16": 4e-3,
    "bfloat16": 1.6e-2,
    "float8_e4m3fn": 0.1,
    "float8_e4m3fnuz": 0.1,
    "float8_e5m2": 0.2,
    "float8_e5m2fnuz": 0.2,
}


@dataclass(frozen=True)
class Comparison:
    """Hold the outcome of a comparison.

    `error` names the worst and the first wrong element, or says that the norm is off, or is None. The maxima are over
    elements for which both values are finite; the relative error counts if |expected| exceeds the absolute tolerance.
    `norms` holds the relative errors of the norms, None for outputs that are not floats.
    """

    error: str | None
    max_abs_error: float
    max_rel_error: float
    norms: Loss | None = None


@dataclass(frozen=True)
class Chunk:
    """Describe a part of an output in row-major order: whole rows, or a part of one row."""

    row: int
    rows: int
    start: int
    size: int


class Tally:
    """Collect figures of the chunks. They stay on the device until the end, because reading them waits for it.

    Chunks in which every element is right have no place in `wrong`, `worst` and `positions`. `first` is the position of
    the first wrong element, None while there is none.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.wrong: list[torch.Tensor] = []
        self.maxima: list[torch.Tensor] = []
        self.worst: list[torch.Tensor] = []
        self.positions: list[torch.Tensor] = []
        self.first: torch.Tensor | None = None
        self.errors = torch.zeros(rows, dtype=torch.float64, device=device)
        self.norms = torch.zeros(rows, dtype=torch.float64, device=device)

    def add_norms(self, chunk: Chunk, difference: torch.Tensor, exact: torch.Tensor) -> None:
        """Add the squares of a chunk to its rows."""
        place = slice(chunk.row, chunk.row + chunk.rows)
        for sums, values in ((self.errors, difference), (self.norms, exact)):
            sums[place] += torch.linalg.vector_norm(values.view(chunk.rows, -1), dim=1).double().square_()

    def add_elements(
        self, chunk: Chunk, right: torch.Tensor, badness: torch.Tensor, maxima: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        """Record how many elements of a chunk are wrong, the worst of them, and the largest errors."""
        self.wrong.append(right.numel() - right.sum())
        self.worst.append(badness.max())
        self.positions.append(badness.argmax() + chunk.start)
        self.maxima.append(torch.stack(maxima))

    def add_wrong(self, chunk: Chunk, right: torch.Tensor) -> None:
        """Record the first wrong element. Call with every chunk that has one, in order."""
        if self.first is None:
            # Of equal values, argmax returns the first.
            self.first = (~right).to(torch.uint8).argmax() + chunk.start

    def loss(self, unit: float = 0.0) -> Loss:
        """Return the relative errors of the norms, 0 if the norm of what is expected is 0 or not finite.

        Each row's error is taken less `unit` times the median row's norm. Intermediate values that are rounded to the
        output's dtype lose that much of what is summed, which is far more than a row whose sums happen to cancel.
        """
        overall = _ratio(float(self.errors.sum()), float(self.norms.sum()))
        beyond = (self.errors.sqrt() - unit * self.norms.median().sqrt()).clamp_(min=0.0)
        # A row of zeros gives 0/0; `where` below drops it.
        rows = beyond / self.norms.sqrt()
        worst = float(torch.where(torch.isfinite(rows), rows, 0.0).max()) if rows.numel() else 0.0
        return Loss(overall, worst if rows.numel() > 1 else overall)


def compare(
    output: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    own: Loss | None = None,
    *,
    norms: bool = True,
    share: float = 1.0,
) -> Comparison:
    """Compare an output with what is expected.

    Check |output - expected| <= atol + rtol * |expected| for every element, that no NaN or infinity is unexpected,
    and that the error of the norms is within what `allowed` permits for the reference's own loss. An infinity is
    expected if the exact value does not fit into the output's dtype. `norms` off leaves the norms to the caller. A
    `share` below 1 permits only that share of every error.
    """
    if tuple(output.shape) != tuple(expected.shape):
        return Comparison(f"shape {list(output.shape)}, expected {list(expected.shape)}", 0.0, 0.0)
    if output.numel() == 0:
        return Comparison(None, 0.0, 0.0)
    got, exact = output.contiguous().flatten(), expected.contiguous().flatten()
    length = row_length(output.shape)
    tally = Tally(output.numel() // length, output.device)
    tolerance = Tolerance(share * tolerance.rtol, share * tolerance.atol)
    for chunk in chunks(output.numel(), length, chunk_bytes_on(output.device)):
        _tally_chunk(tally, chunk, got, exact, tolerance)
    largest = torch.stack(tally.maxima).amax(0).tolist()
    found = tally.loss(torch.finfo(output.dtype).eps) if output.dtype.is_floating_point else None
    error = _elements_wrong(tally, output, got, exact)
    if error is None and norms and found is not None:
        limit = allowed(own, _name(output.dtype))
        error = _norm_wrong(found, Loss(share * limit.overall, share * limit.worst_row), own)
    return Comparison(error, largest[0], largest[1], found)


def loss_of(own: torch.Tensor, exact: torch.Tensor) -> Loss | None:
    """Return what a result loses against the same in higher precision, or None for results that are not floats."""
    if not own.dtype.is_floating_point or own.shape != exact.shape:
        return None
    if own.numel() == 0:
        return Loss(0.0, 0.0)
    got, wanted, length = own.contiguous().flatten(), exact.contiguous().flatten(), row_length(own.shape)
    tally = Tally(own.numel() // length, own.device)
    for chunk in chunks(own.numel(), length, chunk_bytes_on(own.device)):
        value, reference = _cut(got, chunk), _cut(wanted, chunk)
        finite = torch.isfinite(value) & torch.isfinite(reference)
        tally.add_norms(chunk, torch.where(finite, value - reference, 0.0), torch.where(finite, reference, 0.0))
    return tally.loss()


def allowed(own: Loss | None, dtype: str) -> Loss:
    """Return the relative errors of the norms that an output of a dtype may have.

    Overall: `LOSS_FACTOR` times what the reference loses itself, at least the dtype's floor. Rows: twice that, and
    more if the reference's worst row is worse conditioned than the whole. Without a known loss, rows are not judged.
    """
    floor = FLOORS.get(dtype, FLOORS["float32"])
    if own is None:
        return Loss(UNKNOWN_FACTOR * floor, math.inf)
    overall = max(LOSS_FACTOR * own.overall, floor)
    conditioning = max(1.0, own.worst_row / own.overall) if own.overall > 0 else 1.0
    return Loss(overall, ROW_FACTOR * conditioning * overall)


def unexpected_special(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
    """Return a complaint about the first output that holds NaN or infinity although everything expected is finite.

    Even what a problem's own check accepts must be numbers.
    """
    for number, (output, exact) in enumerate(zip(outputs, expected, strict=True)):
        if output.dtype.is_floating_point and specials(exact) == 0 and (bad := specials(output)):
            return f"output {number}: {bad} of {output.numel()} elements are NaN or infinite"
    return None


def specials(tensor: torch.Tensor) -> int:
    """Return how many elements are NaN or infinite, chunk by chunk."""
    flat = tensor.contiguous().flatten()
    cut = (_cut(flat, chunk) for chunk in chunks(flat.numel(), 1, chunk_bytes_on(flat.device)))
    return sum(part.numel() - int(torch.isfinite(part).sum()) for part in cut)


def chunks(elements: int, length: int, chunk_bytes: int) -> Iterator[Chunk]:
    """Cut `elements` in rows of `length` into chunks whose temporaries stay below `chunk_bytes`."""
    most = max(1, chunk_bytes // ELEMENT_BYTES)
    if length <= most:
        step = most // length
        for row in range(0, elements // length, step):
            rows = min(step, elements // length - row)
            yield Chunk(row, rows, row * length, rows * length)
        return
    for row in range(elements // length):
        for start in range(row * length, (row + 1) * length, most):
            yield Chunk(row, 1, start, min(most, (row + 1) * length - start))


def chunk_bytes_on(device: torch.device) -> int:
    """Return the most bytes of temporaries: on a CPU what its caches hold, which is much faster."""
    if device.type == "cpu":
        return min(CHUNK_BYTES, CPU_CHUNK_BYTES)
    return min(CHUNK_BYTES, int(CHUNK_SHARE * torch.cuda.get_device_properties(device).total_memory))


def row_length(shape: torch.Size) -> int:
    """Return the elements of a row: of as many trailing axes as make SHORTEST_ROW, or of all."""
    length = 1
    for extent in reversed(shape):
        length *= extent
        if length >= SHORTEST_ROW:
            break
    return max(length, 1)


def _tally_chunk(tally: Tally, chunk: Chunk, got: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> None:
    if _is_single(got) and _is_single(exact) and _tally_right_chunk(tally, chunk, got, exact, tolerance):
        return
    value, reference = _cut(got, chunk), _cut(exact, chunk)
    difference, scale = (value - reference).abs_(), reference.abs()
    largest = _largest(got.dtype)
    # The common case needs no masks: one reduction tells that all values are finite.
    if torch.isfinite(difference.max()) and scale.max() <= largest:
        right, rows = difference <= scale * tolerance.rtol + tolerance.atol, reference
    else:
        right, difference, rows = _with_specials(got.dtype, value, reference, difference, tolerance)
    badness = torch.full_like(difference[:1], -1.0)
    if not right.all():
        badness = torch.where(right, -1.0, difference.nan_to_num(torch.inf))
        tally.add_wrong(chunk, right)
    if got.dtype.is_floating_point:
        difference = difference.nan_to_num(0.0, 0.0, 0.0) if rows is not reference else difference
        tally.add_norms(chunk, difference, rows)
    relative = (difference / scale).masked_fill_((scale <= tolerance.atol) | ~torch.isfinite(scale), 0.0)
    tally.add_elements(chunk, right, badness, (difference.max(), relative.max()))


def _is_single(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point and tensor.dtype.itemsize <= 4


def _tally_right_chunk(
    tally: Tally, chunk: Chunk, got: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance
) -> bool:
    """Add a chunk in which every element is finite and right, and return whether it is such a chunk.

    Nothing is added otherwise. Both tensors are of single precision or less, so that differences in single precision
    lose nothing that matters; this takes a quarter of the time of double precision on a GPU.
    """
    value, reference = _cut(got, chunk, torch.float32), _cut(exact, chunk, torch.float32)
    difference, scale = (value - reference).abs_(), reference.abs()
    excess = torch.sub(difference, scale, alpha=tolerance.rtol)
    # One read for all, since each waits for the device. NaN is in no range and within no limit.
    most, largest, beyond = torch.stack((difference.max(), scale.max(), excess.max())).tolist()
    if not (SINGLE_RANGE[0] <= largest <= SINGLE_RANGE[1] and most <= SINGLE_RANGE[1] and beyond <= tolerance.atol):
        return False
    tally.add_norms(chunk, difference, reference)
    relative = (difference / scale).masked_fill_(scale <= tolerance.atol, 0.0)
    tally.maxima.append(torch.stack((difference.max(), relative.max())).double())
    return True


def _with_specials(
    dtype: torch.dtype, value: torch.Tensor, exact: torch.Tensor, difference: torch.Tensor, tolerance: Tolerance
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which elements are right, how far they are off, and what is expected, if not all values are finite.

    A special value that is as it should be counts as 0 expected and no difference, any other as an infinite
    difference.
    """
    fitting = exact.to(dtype).to(torch.float64) if dtype.is_floating_point else exact
    special = ~torch.isfinite(fitting) | ~torch.isfinite(value)
    same_special = (value == fitting) | (value.isnan() & exact.isnan())
    within = difference <= tolerance.atol + tolerance.rtol * exact.abs()
    right = torch.where(special, same_special, within)
    off = torch.where(special, torch.where(right, 0.0, torch.inf), difference)
    return right, off, torch.where(special, 0.0, exact)


def _largest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point else math.inf


def _cut(flat: torch.Tensor, chunk: Chunk, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return flat[chunk.start : chunk.start + chunk.size].to(dtype)


def _ratio(error: float, norm: float) -> float:
    ratio = math.sqrt(error / norm) if norm > 0 else 0.0
    return ratio if math.isfinite(ratio) else 0.0


def _elements_wrong(tally: Tally, output: torch.Tensor, got: torch.Tensor, exact: torch.Tensor) -> str | None:
    wrong = int(torch.stack(tally.wrong).sum()) if tally.wrong else 0
    if wrong == 0:
        return None
    worst = int(tally.positions[int(torch.stack(tally.worst).argmax())])
    first = worst if tally.first is None else int(tally.first)
    said = f"{wrong} of {output.numel()} elements wrong; worst at {_element(worst, output, got, exact)}"
    return said if first == worst else f"{said}; first at {_element(first, output, got, exact)}"


def _element(flat: int, output: torch.Tensor, got: torch.Tensor, exact: torch.Tensor) -> str:
    where = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(flat), output.shape))
    return f"[{where}]: got {float(got[flat]):.6g}, expected {float(exact[flat]):.6g}"


def _norm_wrong(found: Loss, limit: Loss, own: Loss | None) -> str | None:
    """Describe which norm is off, and by how much. Every element is within the declared tolerance here."""
    loses = "unknown" if own is None else f"{own.overall:.2g}"
    if found.overall > limit.overall:
        what, much, most = "the output", found.overall, limit.overall
    elif found.worst_row > limit.worst_row:
        what, much, most = "a row of the output", found.worst_row, limit.worst_row
        loses = loses if own is None else f"{own.worst_row:.2g}"
    else:
        return None
    return (
        f"{what} is off by {much:.2g} of its own norm, at most {most:.2g} is allowed (the reference's own precision "
        f"loses {loses}): the declared tolerance hides it"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
