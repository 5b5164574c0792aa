"""Compute where the lines of a comment are in another generation; the stored anchor never changes.

The model is Gerrit's ported comments: a thread follows its lines through the diffs between generations, and becomes a
comment on the whole file when the lines are gone. It never vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from optimizer.diffs.differ import Opcode, Tag


class Fit(StrEnum):
    """Rate a ported position: the same lines; what is left of them or replaced them; or nothing."""

    EXACT = "exact"
    CHANGED = "changed"
    WHOLE_FILE = "whole_file"


@dataclass(frozen=True)
class Position:
    """Hold lines `first` … `first + count - 1`, counted from 1. A whole-file position has first = count = 0."""

    first: int
    count: int
    fit: Fit = Fit.EXACT


WHOLE_FILE = Position(0, 0, Fit.WHOLE_FILE)


def port(position: Position, opcodes: Sequence[Opcode]) -> Position:
    """Return the position after one diff."""
    if position.fit is Fit.WHOLE_FILE:
        return WHOLE_FILE
    first, last = position.first - 1, position.first + position.count - 2
    survivors = [new for code in opcodes if code.tag is Tag.EQUAL for new in _overlap(code, first, last)]
    if survivors:
        # Exact only if all lines survive and nothing was inserted between them.
        whole = len(survivors) == position.count and survivors[-1] - survivors[0] == position.count - 1
        fit = position.fit if whole else Fit.CHANGED
        return Position(survivors[0] + 1, survivors[-1] - survivors[0] + 1, fit)
    return _replacement(opcodes, first, last)


def _overlap(code: Opcode, first: int, last: int) -> range:
    """Return the new indices of the old lines first…last that lie in an equal block."""
    start, end = max(code.a0, first), min(code.a1 - 1, last)
    return range(code.b0 + start - code.a0, code.b0 + end - code.a0 + 1)


def _replacement(opcodes: Sequence[Opcode], first: int, last: int) -> Position:
    """Return the block that replaced lines which are all gone, at most as long as they were, else the whole file."""
    for code in opcodes:
        # Point at the same place within the replacement, as far as it reaches.
        if code.tag is Tag.REPLACE and code.a0 <= first and last < code.a1:
            offset = min(first - code.a0, code.b1 - code.b0 - 1)
            count = min(last - first + 1, code.b1 - code.b0 - offset)
            return Position(code.b0 + offset + 1, count, Fit.CHANGED)
    return WHOLE_FILE
