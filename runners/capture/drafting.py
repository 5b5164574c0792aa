"""Turn ranked calls into problems: extract the computation, run it against the original, and write the folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from runners.capture.calls import Call, TensorNote
from runners.capture.extraction import Code, ExtractionError, extract, identifier, original
from runners.capture.problem_text import (
    TOLERANCES,
    Checked,
    Draft,
    calls_text,
    description_text,
    reference_text,
    seed_text,
    sizes_of,
    toml_text,
)
from runners.capture.ranking import LEAST_SHARE, Row
from runners.export.runtime.structure import inverse
from runners.problems import load
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.files import FILE_BYTES

# Inputs and outputs of one call. A case is made afresh for every call that is timed.
MOST_BYTES = 2 << 30
MOST_CASES = 8
# The share of a problem's time that its timed cases cover.
COVERED = 0.95
# A longer computation is chosen by name only: it is rarely one kernel.
MOST_LINES = 24
OTHERS = ("normal", "large_range", "near_constant")


class CaptureError(ValueError):
    """Nothing can be captured, or not like this. The message says why and what to do."""


@dataclass
class Written:
    """Hold a problem that was written."""

    row: Row
    folder: Path
    left_out: list[str] = field(default_factory=list)


def drafts_of(row: Row, name: str, program: str) -> Draft:
    """Return the problem that the row's calls make. Raises ExtractionError.

    Calls with the same shapes and another computation are left to torch: they differ in the module's settings.
    """
    calls: dict[Any, tuple[Call, Code]] = {}
    variants: list[tuple[Call, Code]] = []
    names = _names(row.calls[0])
    for call in row.calls[: 4 * MOST_CASES]:
        if call.obstacle:
            continue
        code = extract(call, names)
        known = calls.get(call.shapes)
        if known is None and len(calls) < MOST_CASES and _bytes(call) <= MOST_BYTES:
            calls[call.shapes] = (call, code)
        elif known is not None and known[1] == code and call.result == known[0].result:
            variants.append((call, code))
    if not calls:
        raise ExtractionError(
            f"a call takes {_bytes(row.calls[0]) / 2**30:.1f} GiB; {MOST_BYTES >> 30} GiB are the limit"
        )
    # A generator of problems would double what is shared; the variants only add entries to calls.json.
    chosen = [*calls.values()]
    outputs = _outputs(chosen[0][0], names)
    draft = Draft(
        name, tuple(c for c, _ in chosen), tuple(code for _, code in chosen), names, outputs, row.share, program
    )
    _merged(draft, [call for call, _ in variants])
    _check_types(draft)
    return draft


def checked(draft: Draft) -> Checked:
    """Run the written reference against the original at every shape. Raises ExtractionError where they differ."""
    module = _executed(reference_text(draft))
    tolerances: dict[str, tuple[float, float]] = {}
    wide, kinds = True, list(OTHERS)
    for index, call in enumerate(draft.calls):
        given = _inputs(module, draft, index)
        device = _device_of(call)
        placed = [tensor.to(device) for tensor in given]
        with torch.no_grad():
            mine = _as_list(module.reference(*[tensor.clone() for tensor in placed]))
        theirs = original(call, [_logical(t, note) for t, note in zip(placed, _notes(call), strict=True)])
        _assert_same(call, mine, theirs)
        loss = _losses(module, placed, mine)
        wide = wide and loss is not None
        for position, value in enumerate(mine):
            _widen(tolerances, value, (loss or [0.0] * len(mine))[position])
        kinds = [kind for kind in kinds if _survives(module, draft, placed, kind)]
    return Checked(tolerances, ("captured", *kinds), wide)


def write(row: Row, draft: Draft, folder: Path) -> Written:
    """Write the problem below a folder and read it again. Raises ExtractionError, FileExistsError, ProblemError."""
    place = folder / draft.name
    if place.exists():
        raise FileExistsError(f"{place} exists; choose another folder with --out, or remove it")
    found = checked(draft)
    text = reference_text(draft, wide=found.wide)
    if len(text.encode()) > FILE_BYTES:
        raise ExtractionError("the inputs that would have to be saved are too large for a problem")
    written = Written(row, place, _left_out(row, draft))
    files = {
        "problem.toml": toml_text(
            draft, found, _timed(draft), [_flops(draft, n, text) for n in range(len(draft.calls))]
        ),
        "description.md": description_text(draft, found, written.left_out),
        "reference.py": text,
        "seeds/reference.py": seed_text(draft),
        "calls.json": calls_text(draft),
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    load(place)
    return written


def chosen(rows: Sequence[Row], top: int, wanted: Sequence[str]) -> Iterator[Row]:
    """Yield the rows to try in order: those that were named, or else those that matter. Raises CaptureError.

    A row may be named by its number in the table, or by a part of its title.
    """
    if not wanted:
        yield from (row for row in rows if row.share >= LEAST_SHARE and not row.obstacle)
        return
    for word in wanted:
        found = [
            row for n, row in enumerate(rows, 1) if word == str(n) or (not word.isdigit() and word in row.title)
        ]
        if not found:
            raise CaptureError(f"nothing that was called is named {word!r}; the table has the names and numbers")
        usable = [row for row in found if not row.obstacle]
        if not usable:
            raise CaptureError(f"{found[0].title} cannot become a problem: {found[0].obstacle}")
        yield usable[0]


def _names(call: Call) -> tuple[str, ...]:
    taken: list[str] = []
    for name in (*call.names, *(path.replace(".", "_") for path in call.state)):
        taken.append(identifier(name, lambda found: found in taken))
    return tuple(taken)


def _outputs(call: Call, names: Sequence[str]) -> tuple[str, ...]:
    made = ["out"] if len(call.outputs) == 1 else [f"out{n}" for n in range(len(call.outputs))]
    return tuple(f"{name}_" if name in names else name for name in made)


def _merged(draft: Draft, calls: Sequence[Call]) -> None:
    """Add calls that compute the same, such as those of other layers, to the ones that a kernel replaces."""
    by_shapes = {call.shapes: call for call in draft.calls}
    for call in calls:
        by_shapes[call.shapes].also.append(call)


def _check_types(draft: Draft) -> None:
    for name, note in zip((*draft.names, *draft.outputs), (*draft.notes, *draft.first.outputs), strict=True):
        if note.dtype not in ELEMENT_TYPES:
            raise ExtractionError(f"{name} is {note.dtype}, which is no element type of kernels")
    if not draft.names:
        raise ExtractionError("takes no tensor")


def _notes(call: Call) -> tuple[TensorNote, ...]:
    return (*call.inputs, *call.state.values())


def _bytes(call: Call) -> int:
    notes = (*_notes(call), *call.outputs)
    return sum(math.prod(n.shape) * ELEMENT_TYPES[n.dtype].size_bytes for n in notes if n.dtype in ELEMENT_TYPES)


def _executed(text: str) -> ModuleType:
    module = ModuleType("captured")
    exec(compile(text, "reference.py", "exec"), module.__dict__)  # noqa: S102 - written here, from the user's program
    return module


def _inputs(module: Any, draft: Draft, index: int) -> list[torch.Tensor]:
    """Return inputs of a case as a kernel gets them, on the CPU."""
    _, values = sizes_of(draft)
    made = module.fill_captured(values[index], torch.Generator().manual_seed(index))
    call = draft.calls[index]
    return [made[name].to(getattr(torch, n.dtype)) for name, n in zip(draft.names, _notes(call), strict=True)]


def _device_of(call: Call) -> torch.device:
    """Return the device on which the program ran the call."""
    return torch.device(call.device)


def _logical(tensor: torch.Tensor, note: TensorNote) -> torch.Tensor:
    """Return a tensor in the order of axes that the program sees."""
    return tensor if note.order is None else tensor.permute(inverse(note.order))


def _assert_same(call: Call, mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    stored = [
        t.permute(list(note.order)) if note.order is not None else t
        for t, note in zip(theirs, call.outputs, strict=True)
    ]
    for ours, note in zip(mine, call.outputs, strict=True):
        if (found := str(ours.dtype).removeprefix("torch.")) != note.dtype:
            raise ExtractionError(f"returned {note.dtype} in the program and {found} when called again")
    for ours, other in zip(mine, stored, strict=True):
        if ours.dtype != other.dtype or ours.shape != other.shape:
            raise ExtractionError("the extracted code returns other tensors than the original")
        if not torch.allclose(ours.double(), other.double(), rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ExtractionError("the extracted code does not compute what the original computes")


def _losses(module: Any, given: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> list[float] | None:
    """Return the largest error of each output against float64, relative to its scale; None if float64 fails."""
    try:
        with torch.no_grad():
            wide = _as_list(module.reference(*[t.double() if t.dtype.is_floating_point else t for t in given]))
    except Exception:  # the reference was captured from foreign code
        return None
    found = [_loss(value, exact) for value, exact in zip(own, wide, strict=True)]
    # Far apart means that the code converts types on its way, so that float64 shows something else.
    return found if all(loss < 0.05 for loss in found) else None


def _loss(value: torch.Tensor, exact: torch.Tensor) -> float:
    if not value.dtype.is_floating_point:
        return 0.0 if torch.equal(value, exact.to(value.dtype)) else 1.0
    finite = torch.isfinite(exact)
    scale = _scale(value)
    return (
        float(((value.double() - exact.double())[finite].abs() / (scale + exact.double()[finite].abs())).max())
        if (bool(finite.any()))
        else 0.0
    )


def _scale(value: torch.Tensor) -> float:
    """Return the root mean square of the finite elements: what an absolute error is compared with."""
    finite = value[torch.isfinite(value)].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _widen(tolerances: dict[str, tuple[float, float]], value: torch.Tensor, loss: float) -> None:
    """Set the tolerance of an output's type: the usual one, or four times what the reference itself loses."""
    dtype = str(value.dtype).removeprefix("torch.")
    if not value.dtype.is_floating_point:
        tolerances[dtype] = (0.0, 0.0)
        return
    rtol = min(max(TOLERANCES[dtype], 4 * loss), 0.5)
    atol = float(f"{rtol * (_scale(value) or 1.0):.2g}")
    before = tolerances.get(dtype, (0.0, 0.0))
    tolerances[dtype] = (max(before[0], float(f"{rtol:.2g}")), max(before[1], atol))


def _survives(module: Any, draft: Draft, given: Sequence[torch.Tensor], kind: str) -> bool:
    """Return whether inputs of a generic distribution are a test: finite results, and float64 near the own ones."""
    from runners.problems.distributions import fill

    if not all(tensor.dtype.is_floating_point for tensor in given):
        return False
    generator = torch.Generator().manual_seed(1)
    made = [fill(kind, tuple(t.shape), t.dtype, generator).to(t.device) for t in given]
    with torch.no_grad():
        own = _as_list(module.reference(*made))
    if not all(bool(torch.isfinite(value).all()) for value in own):
        return False
    losses = _losses(module, made, own)
    dtypes = [note.dtype for note in draft.first.outputs]
    return losses is not None and all(
        loss <= TOLERANCES.get(dtype, 1.0) / 4 for loss, dtype in zip(losses, dtypes, strict=True)
    )


def _timed(draft: Draft) -> list[bool]:
    """Return which cases are timed: the longest, until they cover nearly all of the problem's time."""
    total = sum(call.seconds for call in draft.calls) or 1.0
    covered, timed = 0.0, []
    for call in draft.calls:
        timed.append(covered < COVERED * total)
        covered += call.seconds
    return timed


def _flops(draft: Draft, index: int, text: str) -> float | None:
    """Return the FLOPs of products, convolutions and attention, None where there are none to count."""
    module = _executed(text)
    given = [tensor.to(_device_of(draft.calls[index])) for tensor in _inputs(module, draft, index)]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module.reference(*given)
    return float(counter.get_total_flops()) or None


def _left_out(row: Row, draft: Draft) -> list[str]:
    kept = sum(call.count for call in draft.calls) + sum(len_also(call) for call in draft.calls)
    missing = row.count - kept
    return (
        [f"{missing} of {row.count} calls had other shapes or settings and are not part of this problem."]
        if missing
        else []
    )


def len_also(call: Call) -> int:
    """Return how many further calls compute the same as this one."""
    return sum(other.count for other in call.also)


def _as_list(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple | list) else [made]
