"""Present two texts as rows: which old line is beside which new one, what changed within it, what was moved.

The pipeline is: differ → opcodes → rows → folding (what is shown) → markup (`optimizer.views.diff_markup`). Line
indices count from 0 here; people see them from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import zip_longest

from optimizer.diffs.differ import Opcode, Tag, diff
from optimizer.diffs.intraline import Marks, mark, pair_lines
from optimizer.diffs.moves import moved_lines

# Line pairs per diff that are compared for similarity (about 0.2 s); later blocks are paired in order.
MOST_COMPARISONS = 40_000
CACHED_DIFFS = 64


class RowKind(StrEnum):
    """Name the kind of a row."""

    EQUAL = "equal"
    # Both sides are similar, and their differences are marked.
    CHANGED = "changed"
    # Both sides stand at the same place and have little in common.
    REPLACED = "replaced"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Row:
    """Hold an old line, a new line, or both side by side."""

    old: int | None
    new: int | None
    kind: RowKind


@dataclass(frozen=True)
class Text:
    """Hold a text as lines. `ends` is False where the last line has no line end."""

    lines: tuple[str, ...]
    ends: bool = True

    @classmethod
    def of(cls, text: str) -> Text:
        """Split a text at LF; a carriage return stays part of its line and is shown."""
        lines = text.split("\n")
        ends = len(lines) > 1 and not lines[-1]
        return cls(tuple(lines[:-1] if ends else lines), ends)


@dataclass(frozen=True)
class TextDiff:
    """Hold two texts and the rows between them. `moved_to` and `moved_from` map moved lines (old → new, new → old)."""

    old: Text
    new: Text
    rows: Sequence[Row]
    moved_to: Mapping[int, int] = field(default_factory=dict)
    moved_from: Mapping[int, int] = field(default_factory=dict)

    def marks(self, row: Row) -> Marks:
        """Return what changed inside a changed row; computed only for rows that are shown."""
        if row.kind is not RowKind.CHANGED or row.old is None or row.new is None:
            return Marks()
        return mark(self.old.lines[row.old], self.new.lines[row.new])

    @cached_property
    def changed(self) -> list[int]:
        """Return the numbers of the rows that are not equal."""
        return [number for number, row in enumerate(self.rows) if row.kind is not RowKind.EQUAL]

    @cached_property
    def row_of_old(self) -> Mapping[int, int]:
        """Map each old line to its row."""
        return {row.old: number for number, row in enumerate(self.rows) if row.old is not None}

    @cached_property
    def row_of_new(self) -> Mapping[int, int]:
        """Map each new line to its row."""
        return {row.new: number for number, row in enumerate(self.rows) if row.new is not None}

    @property
    def added(self) -> int:
        """Count the new lines that are not in the old text."""
        return sum(row.kind is not RowKind.EQUAL and row.new is not None for row in self.rows)

    @property
    def removed(self) -> int:
        """Count the old lines that are not in the new text."""
        return sum(row.kind is not RowKind.EQUAL and row.old is not None for row in self.rows)


@lru_cache(maxsize=CACHED_DIFFS)
def compare(old: str, new: str, ignore_space: bool = False) -> TextDiff:
    """Return the diff of two texts, cached by content.

    With `ignore_space`, lines that differ only in white space are equal.
    """
    a, b = Text.of(old), Text.of(new)
    if ignore_space:
        opcodes = diff([_squeezed(line) for line in a.lines], [_squeezed(line) for line in b.lines])
    else:
        opcodes = diff(a.lines, b.lines)
    there, back = moved_lines(opcodes, a.lines, b.lines)
    return TextDiff(a, b, tuple(_rows(opcodes, a.lines, b.lines, there, back)), there, back)


@lru_cache(maxsize=CACHED_DIFFS)
def alone(text: str) -> TextDiff:
    """Return one text as a diff without changes, for a kernel that has nothing to be compared with."""
    lines = Text.of(text)
    return TextDiff(lines, lines, tuple(Row(n, n, RowKind.EQUAL) for n in range(len(lines.lines))))


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _rows(
    opcodes: Sequence[Opcode],
    a: Sequence[str],
    b: Sequence[str],
    there: Mapping[int, int],
    back: Mapping[int, int],
) -> Iterator[Row]:
    left = MOST_COMPARISONS
    for code in opcodes:
        if code.tag is Tag.EQUAL:
            yield from (Row(code.a0 + n, code.b0 + n, RowKind.EQUAL) for n in range(code.a1 - code.a0))
            continue
        # A budget for the whole diff: many medium blocks cost as much as one large one.
        needed = (code.a1 - code.a0) * (code.b1 - code.b0)
        yield from _replaced(code, a, b, there, back, alike=needed <= left)
        left -= min(needed, left)


def _replaced(
    code: Opcode,
    a: Sequence[str],
    b: Sequence[str],
    there: Mapping[int, int],
    back: Mapping[int, int],
    *,
    alike: bool,
) -> Iterator[Row]:
    """Yield the rows of a replaced block: similar lines side by side, and the others in order between them.

    A moved line is never paired as similar, because its counterpart is elsewhere.
    """
    olds: list[int] = []
    news: list[int] = []
    for i, j in pair_lines(a[code.a0 : code.a1], b[code.b0 : code.b1], alike=alike):
        old = None if i is None else code.a0 + i
        new = None if j is None else code.b0 + j
        # Emit what was collected before each pair, so that both sides stay in their order.
        if old is not None and new is not None and old not in there and new not in back:
            yield from _beside(olds, news)
            yield Row(old, new, RowKind.CHANGED)
            olds, news = [], []
            continue
        olds += [] if old is None else [old]
        news += [] if new is None else [new]
    yield from _beside(olds, news)


def _beside(olds: Sequence[int], news: Sequence[int]) -> Iterator[Row]:
    for old, new in zip_longest(olds, news):
        yield Row(old, new, RowKind.ADDED if old is None else RowKind.REMOVED if new is None else RowKind.REPLACED)
