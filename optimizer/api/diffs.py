"""What changed between two kernels, and what that did to their times; and a kernel as something to hand in."""

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
from optimizer.reports.files import patch_attachment, submission_attachment
from optimizer.reports.submission import NoSubmissionError
from optimizer.views.diff_change import change_between, settings_between
from optimizer.views.diff_sides import SOURCE, Sides, other_of, sides_of

router = Router(tags=["kernels"], auth=needs(TokenScope.READ))


class DiffFilter(Schema):
    """What to compare. `against` is `parent`, `best`, `seed`, `reference`, `none`, a number of the same run, or
    `run.number`; `text` the source or the name of a compiler's listing; `context` rows surround every change."""

    against: Annotated[str, Query(max_length=40)] = "parent"
    text: Annotated[str, Query(max_length=300)] = SOURCE
    ignore_space: bool = False
    context: Annotated[int, Query(ge=0, le=10_000)] = CONTEXT_ROWS


class KernelPlace(Schema):
    """Which kernel it is."""

    run: int
    number: int


class RowOut(Schema):
    """An old line, a new line, or both side by side, counted from 1. `kind` is equal, changed (alike), replaced (not
    alike), removed or added; `moved` is the line on the other side that the same text stands on."""

    kind: str
    old: int | None
    new: int | None
    old_text: str | None
    new_text: str | None
    moved: int | None


class ShapeChangeOut(Schema):
    """One shape: medians in µs, and how many times faster the new kernel is, with its 95 % interval."""

    name: str
    old_us: float | None
    new_us: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


class ResourceChangeOut(Schema):
    """A figure that the compiler or the device reports of one device kernel."""

    kernel: str
    label: str
    old: Any
    new: Any


class ChangeOut(Schema):
    """Times before and after. `overall` is null where the two cannot be compared, and `why_not` says why; `paired`:
    timed in turn rather than compared through the baseline."""

    shapes: list[ShapeChangeOut]
    overall: ShapeChangeOut | None
    resources: list[ResourceChangeOut]
    paired: bool
    why_not: str


class SettingChange(Schema):
    """A tunable, or the compiler's flags; null where a side leaves it to its default."""

    name: str
    old: Any
    new: Any


class DiffOut(Schema):
    """A kernel beside another one: `old` is null, and the text whole, where there is nothing to compare with. `texts`
    are what else can be compared. Each hunk is a run of rows; unchanged lines between hunks are left out."""

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
    """404 where the other kernel or the text is not there for the caller."""
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
    """What the kernel changed since the seed it came from, as a unified diff for `patch -p1`."""
    return patch_attachment(access_kernel(caller(request), run_id, number, "view"))


@router.get("/{int:run_id}/kernels/{int:number}/submission/{slug:kind}", response={422: Refusal})
def read_submission(request: HttpRequest, run_id: int, number: int, kind: str) -> Any:
    """The file to hand in: `native`, `gpumode` or `kernelbench`. 422 says why this kernel cannot be one."""
    kernel = access_kernel(caller(request), run_id, number, "view")
    try:
        return submission_attachment(kernel, kind)
    except NoSubmissionError as error:
        raise ValidationError(str(error)) from error


def _place(kernel: Kernel) -> dict[str, int]:
    return {"run": kernel.run_id, "number": kernel.number}


def _hunks(sides: Sides, context: int) -> Iterator[Sequence[dict[str, Any]]]:
    """The shown rows, broken where something is left out."""
    rows = sides.diff.rows
    centres = sides.diff.changed if sides.old else range(len(rows))
    shown = visible_rows(len(rows), centres, (), context)
    start = 0
    for gap in [*gaps(0, len(rows), shown), Gap(len(rows), len(rows))]:
        if gap.start > start:
            yield [_row(sides.diff, row) for row in rows[start : gap.start]]
        start = gap.end


def _row(diff: TextDiff, row: Row) -> dict[str, Any]:
    old, new = row.old, row.new
    moved = diff.moved_to.get(old) if old is not None else None
    moved = diff.moved_from.get(new) if moved is None and new is not None else moved
    return {
        "kind": row.kind.value,
        "old": None if old is None else old + 1,
        "new": None if new is None else new + 1,
        "old_text": None if old is None else diff.old.lines[old],
        "new_text": None if new is None else diff.new.lines[new],
        "moved": None if moved is None else moved + 1,
    }
