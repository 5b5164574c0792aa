"""Merge two changes of the same text line by line, or report that they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.diffs.differ import Tag, diff


@dataclass(frozen=True)
class _Change:
    """State that base[start:end] becomes `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def merge(base: str, mine: str, theirs: str) -> str | None:
    """Apply to `theirs` what `mine` changed in `base`, or return None where both changed the same or adjacent lines.

    The algorithm is diff3 (Khanna, Kunal and Pierce 2007) without conflict markers. Identical changes do not
    conflict.
    """
    lines = base.split("\n")
    changes = _changes(lines, mine.split("\n"))
    others = _changes(lines, theirs.split("\n"))
    # The same change on both sides is no conflict and must be applied once.
    fresh = [change for change in changes if change not in others]
    if any(_touch(change, other) for change in fresh for other in others):
        return None
    return "\n".join(_applied(lines, [*fresh, *others]))


def _changes(base: Sequence[str], text: Sequence[str]) -> list[_Change]:
    return [
        _Change(code.a0, code.a1, tuple(text[code.b0 : code.b1]))
        for code in diff(base, text)
        if code.tag is not Tag.EQUAL
    ]


def _touch(one: _Change, other: _Change) -> bool:
    # Adjacent changes count as touching: their order would be arbitrary, and the result was seen by neither author.
    return one.start <= other.end and other.start <= one.end


def _applied(base: Sequence[str], changes: Sequence[_Change]) -> list[str]:
    result: list[str] = []
    place = 0
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        result += [*base[place : change.start], *change.lines]
        place = change.end
    return [*result, *base[place:]]
