"""Insert lines of the source that an answer names instead of repeating them.

Agents specialise kernels: a loop gets a second form for another shape, most of whose lines stand in the source already.
Of the lines that were new in the recorded kernels of a STARK run, more than a third did (docs/evidence/prompts.md). Two
marks stand for such lines:

    <<<COPY FROM>>> the first line
    <<<COPY TO>>> the last line

Everything here is a function of hostile text. Its run time is linear in the lengths of source, answer and result, and
the result is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from optimizer.agents.code_blocks import MAX_SOURCE_BYTES, AnswerError, Edit, Fault

FROM, TO = "<<<COPY FROM>>>", "<<<COPY TO>>>"
_MARK = re.compile(r"^(?P<indent>[ \t]*)(?:(?://|#)[ \t]*)?<{2,3} ?COPY (?P<end>FROM|TO) ?>{2,3}(?P<line>.*)$")
# So many places of an ambiguous line are named.
MOST_PLACES = 5


def edits_with_copies(edits: Iterable[Edit], source: str) -> list[Edit]:
    """Return the edits with the named lines of the source in their new lines. Raises AnswerError."""
    lines = _Source(source)
    return [replace(edit, replace=tuple(lines.copied_into(edit.replace))) for edit in edits]


def text_with_copies(text: str, source: str) -> str:
    """Return a text with the named lines of the source in it; an empty source has none. Raises AnswerError."""
    return "\n".join(_Source(source).copied_into(text.split("\n")))


class _Source:
    """Find lines of a source by their text, whatever their indentation."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.places: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self.lines):
            self.places[_squeezed(line)].append(number)
        self.copied = 0

    def copied_into(self, lines: Sequence[str]) -> list[str]:
        """Return the lines with those that marks name in the place of the marks. Raises AnswerError."""
        result: list[str] = []
        begun: re.Match[str] | None = None
        for line in lines:
            mark = _MARK.match(line)
            if begun is None and mark and mark["end"] == "FROM":
                begun = mark
            elif begun is not None and mark and mark["end"] == "TO":
                result += self._between(begun, mark["line"])
                begun = None
            elif begun is not None or mark:
                raise AnswerError(
                    Fault.MALFORMED_EDIT, f"A line {FROM} must be followed directly by its line {TO}."
                )
            else:
                result.append(line)
        if begun is not None:
            raise AnswerError(Fault.MALFORMED_EDIT, f"The last {FROM} has no line {TO} below it.")
        return result

    def _between(self, begun: re.Match[str], last: str) -> list[str]:
        """Return the named lines, indented as the first mark is. Raises AnswerError."""
        start = self._only_place(begun["line"])
        ends = self.places.get(_squeezed(last), []) if last.strip() else []
        at = bisect_left(ends, start)
        if at == len(ends):
            raise AnswerError(
                Fault.SEARCH_MISSING,
                f"{TO}: there is no line “{last.strip()[:80]}” in the source at or below the line that follows {FROM}.",
            )
        found = self.lines[start : ends[at] + 1]
        self.copied += sum(map(len, found)) + len(found) * (1 + len(begun["indent"]))
        # Marks cost a few characters, and what they name may be long: the sum is limited before it is built.
        if self.copied > MAX_SOURCE_BYTES:
            raise AnswerError(
                Fault.TOO_LONG, f"The copied lines are longer than {MAX_SOURCE_BYTES // 1024} KiB together."
            )
        own = found[0][: len(found[0]) - len(found[0].lstrip())]
        return [begun["indent"] + line[len(own) :] if line and line.startswith(own) else line for line in found]

    def _only_place(self, line: str) -> int:
        """Return the number of the only line with that text. Raises AnswerError."""
        found = self.places.get(_squeezed(line), []) if line.strip() else []
        shown = line.strip()[:80]
        if not found:
            raise AnswerError(Fault.SEARCH_MISSING, f"{FROM}: there is no line “{shown}” in the source.")
        if len(found) > 1:
            named = ", ".join(str(place + 1) for place in found[:MOST_PLACES])
            raise AnswerError(
                Fault.SEARCH_AMBIGUOUS,
                f"{FROM}: the line “{shown}” occurs {len(found)} times, at lines {named}. Begin at a line that occurs "
                "once, or write these lines.",
            )
        return found[0]


def _squeezed(line: str) -> str:
    return " ".join(line.split())
