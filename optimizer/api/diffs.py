"""Serve the differences between two kernels, their effect on the times, and kernels as submissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from optimizer.access import access_kernel
from optimizer.api.auth import caller, needs
from optimizer.api.errors import Refusal
from optimizer.diffs.folding import CONTEXT_ROWS, Gap, gaps, visible_rows
from optimizer.diffs.rows import Row, TextDiff
from optimizer.models import Kernel, TokenScope
from optimizer.queries.diff_change import change_between, settings_between
from optimizer.queries.diff_sides import SOURCE, Sides, other_of, sides_of
from optimizer.reports.files import patch_attachment, submission_attachment
from optimizer.reports.submission import NoSubmissionError

router = Router(tags=["kernels"], auth=needs(TokenScope.READ))


class DiffFilter(Schema):
    """Select what to compare.

    `against` is `parent`, `best`, `seed`, `reference`, `none`, a number of the same run, or `run.number`. `text` is
    the source or the name of a compiler listing. `context` rows surround every change.
    """

    against: Annotated[str, Query(max_length=40)] = "parent"
    text: Annotated[str, Query(max_length=300)] = SOURCE
    ignore_space: bool = False
    context: Annotated[int, Query(ge=0, le=10_000)] = CONTEXT_ROWS


class KernelPlace(Schema):
    """Identify a kernel."""

    run: int
    number: int


class RowOut(Schema):
    """Describe an old line, a new line, or both side by side, counted from 1.

    `kind` is equal, changed (similar), replaced (not similar), removed or added. `moved` is the line on the other
    side that has the same text.
    """

    kind: str
    old: int | None
    new: int | None
    old_text: str | None
    new_text: str | None
    moved: int | None


class ShapeChangeOut(Schema):
    """Describe one shape: medians in µs, and the new kernel's speedup with its 95 % interval."""

    name: str
    old_us: float | None
    new_us: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


class ResourceChangeOut(Schema):
    """Describe a figure that the compiler or the device reports about one device kernel."""

    kernel: str
    label: str
    old: Any
    new: Any


class ChangeOut(Schema):
    """Describe the times before and after.

    `overall` is null where the two are not comparable, and `why_not` gives the reason. `paired` means that both were
    timed alternately instead of being compared through the baseline.
    """

    shapes: list[ShapeChangeOut]
    overall: ShapeChangeOut | None
    resources: list[ResourceChangeOut]
    paired: bool
    why_not: str


class SettingChange(Schema):
    """Describe a tunable or the compiler flags; null where a side uses the default."""

    name: str
    old: Any
    new: Any


class DiffOut(Schema):
    """Describe a kernel beside another one.

    `old` is null, and the text complete, where there is nothing to compare with. `texts` lists what else can be
    compared. Each hunk is a sequence of rows; unchanged lines between hunks are left out.
    """

    old: KernelPlace | None
    new: KernelPlace
    text: str
    texts: list[str]
    added: int
    removed: int
    hunks: list[list[RowOut]]
    settings: list[SettingChange]
    change: ChangeOut | None


@router.get("/{int:run_id}/kernels/{int:number}/diff", response=DiffOut)
def read_diff(request: HttpRequest, run_id: int, number: int, asked: Query[DiffFilter]) -> Any:
    """Return the diff. Answers 404 where the caller cannot see the other kernel or the text does not exist."""
    # `other_of` checks the access to the second kernel, which may belong to another run.
    user = caller(request)
    new = access_kernel(user, run_id, number, "view")
    old = other_of(user, new, asked.against)
    sides = sides_of(old, new, asked.text, asked.ignore_space)
    changed = settings_between(old, new) if old else []
    return {
        "old": _place(old) if old else None,
        "new": _place(new),
        "text": asked.text,
        "texts": sides.tabs,
        "added": sides.diff.added,
        "removed": sides.diff.removed,
        "hunks": list(_hunks(sides, asked.context)),
        "settings": [{"name": name, "old": was, "new": now} for name, was, now in changed],
        "change": change_between(old, new) if old else None,
    }


@router.get("/{int:run_id}/kernels/{int:number}/patch")
def read_patch(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return what the kernel changed since its seed, as a unified diff for `patch -p1`."""
    return patch_attachment(access_kernel(caller(request), run_id, number, "view"))


@router.get("/{int:run_id}/kernels/{int:number}/submission/{slug:kind}", response={422: Refusal})
def read_submission(request: HttpRequest, run_id: int, number: int, kind: str) -> Any:
    """Return the file to submit: `native`, `gpumode` or `kernelbench`. 422 gives the reason where
    this is impossible.
    """
    kernel = access_kernel(caller(request), run_id, number, "view")
    try:
        return submission_attachment(kernel, kind)
    except NoSubmissionError as error:
        raise ValidationError(str(error)) from error


def _place(kernel: Kernel) -> dict[str, int]:
    return {"run": kernel.run_id, "number": kernel.number}


def _hunks(sides: Sides, context: int) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the visible rows, split where rows are left out."""
    rows = sides.diff.rows
    # Without an old side there are no changes, so every row is shown.
    centres = sides.diff.changed if sides.old else range(len(rows))
    shown = visible_rows(len(rows), centres, (), context)
    start = 0
    # The added empty gap at the end closes the last hunk.
    for gap in [*gaps(0, len(rows), shown), Gap(len(rows), len(rows))]:
        if gap.start > start:
            yield [_row(sides.diff, row) for row in rows[start : gap.start]]
        start = gap.end


def _row(diff: TextDiff, row: Row) -> dict[str, Any]:
    old, new = row.old, row.new
    moved = diff.moved_to.get(old) if old is not None else None
    # A row has one field for both directions, as a line moved either to or from the other side.
    moved = diff.moved_from.get(new) if moved is None and new is not None else moved
    return {
        "kind": row.kind.value,
        "old": None if old is None else old + 1,
        "new": None if new is None else new + 1,
        "old_text": None if old is None else diff.old.lines[old],
        "new_text": None if new is None else diff.new.lines[new],
        "moved": None if moved is None else moved + 1,
    }
