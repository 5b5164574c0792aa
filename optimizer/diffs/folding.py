"""Choose the rows of a long diff that are shown: changes, a little context, and what a reader has opened."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

CONTEXT_ROWS = 5
STEP_ROWS = 20
# Shorter gaps are shown, since the row that stands for a gap takes as much room.
LEAST_HIDDEN = 3
# How many rows upwards to search for the beginning of a function.
FUNCTION_REACH = 400
_FUNCTION = re.compile(
    r"^(?:@|async def |def |class |template\b|extern\b|static\b|inline\b|__global__|__device__|struct\b|namespace\b"
    r"|(?!(?:if|for|while|switch|else|return|do)\b)[A-Za-z_][\w:<>,*& ]*\([^;]*$)"
)

# A half-open range of row numbers.
Range = tuple[int, int]


@dataclass(frozen=True)
class Gap:
    """State that the rows `start` … `end - 1` are hidden."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Return the number of hidden rows."""
        return self.end - self.start


def visible_rows(
    count: int, centres: Iterable[int], opened: Iterable[Range], context: int = CONTEXT_ROWS
) -> set[int]:
    """Return the numbers of the rows to show: `context` around each centre, and the opened ranges.

    Gaps shorter than `LEAST_HIDDEN` are closed.
    """
    shown: set[int] = set()
    for centre in centres:
        shown.update(range(max(0, centre - context), min(count, centre + context + 1)))
    for start, end in opened:
        shown.update(range(max(0, start), min(count, end)))
    for gap in list(gaps(0, count, shown)):
        # A folded gap needs a row of its own, so hiding one or two rows saves nothing.
        if gap.size < LEAST_HIDDEN:
            shown.update(range(gap.start, gap.end))
    return shown


def gaps(start: int, end: int, shown: Collection[int]) -> Iterator[Gap]:
    """Yield the maximal hidden runs within [start, end), in order."""
    begin: int | None = None
    for number in range(start, end):
        if number in shown:
            if begin is not None:
                yield Gap(begin, number)
            begin = None
        elif begin is None:
            begin = number
    if begin is not None:
        yield Gap(begin, end)


def function_start(lines: Sequence[str], line: int) -> int | None:
    """Return the line (from 0) at or above `line` where its function seems to begin, or None when none is near."""
    for number in range(min(line, len(lines) - 1), max(-1, line - FUNCTION_REACH), -1):
        if _FUNCTION.match(lines[number]):
            # A regular expression stands in for a parser: the text may be incomplete or in any of five languages.
            return _with_decorators(lines, number)
    return None


def _with_decorators(lines: Sequence[str], number: int) -> int:
    """Move up over decorators, attributes and template heads, which belong to the function below."""
    while number > 0 and lines[number - 1].startswith(("@", "template", "__attribute__", "extern", "static")):
        number -= 1
    return number
