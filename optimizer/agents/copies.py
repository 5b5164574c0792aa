"""Insert lines of the source that an answer names instead of repeating them.

Agents specialise kernels: a loop gets a second form for another shape, many of whose lines stand in the source already.
Of the lines that were new in the recorded kernels of a STARK run, more than a third did (docs/evidence/prompts.md). Two
marks stand for such lines:

    <<<COPY FROM>>> the first line
    <<<COPY TO>>> the last line

Everything here is a function of hostile text. Its run time is linear in the lengths of source, answer and result, and
the result of a call is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from optimizer.agents.code_blocks import MAX_SOURCE_BYTES, AnswerError, Edit, Fault
from optimizer.agents.line_search import MOST_PLACES, squeezed

FROM, TO = "<<<COPY FROM>>>", "<<<COPY TO>>>"
# Possessive repetitions (`*+`): trying every division of a long line between them would take quadratic time.
_SAID = r"(?<!<)<{2,}+\s*+COPY\s++(?P<end>FROM|TO)\s*+>{2,}+"
_MARK = re.compile(
    rf"^(?P<indent>[ \t]*+)(?:(?://++|#++|(?P<comment>/\*))[ \t]*+)?{_SAID}(?P<line>.*)$", re.IGNORECASE
)
_LIKE_A_MARK = re.compile(_SAID, re.IGNORECASE)


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
            self.places[squeezed(line)].append(number)
        self.copied = 0

    def copied_into(self, lines: Sequence[str]) -> list[str]:
        """Return the lines with those that marks name in the place of the marks. Raises AnswerError."""
        result: list[str] = []
        begun: re.Match[str] | None = None
        for line in lines:
            mark = _MARK.match(line)
            if mark is None and _LIKE_A_MARK.search(line):
                raise AnswerError(
                    Fault.MALFORMED_EDIT, f"{FROM} and {TO} must stand first in their lines: “{line.strip()[:80]}”."
                )
            if begun is None and mark and mark["end"].upper() == "FROM":
                begun = mark
            elif begun is not None and mark and mark["end"].upper() == "TO":
                result += self._between(begun, _named(mark))
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
        """Return the named lines, moved to the indentation of the first mark. Raises AnswerError."""
        start = self._only_place(_named(begun))
        ends = self.places.get(squeezed(last), []) if last else []
        at = bisect_left(ends, start)
        if at == len(ends):
            # Not SEARCH_MISSING: the edit itself fits the kernel.
            raise AnswerError(
                Fault.MALFORMED_EDIT,
                f"{TO}: there is no line “{last[:80]}” in the source at or below the line that {FROM} names.",
            )
        found = self.lines[start : ends[at] + 1]
        self.copied += sum(map(len, found)) + len(found) * (1 + len(begun["indent"]))
        # Marks cost a few characters, and what they name may be long: the sum is limited before it is built.
        if self.copied > MAX_SOURCE_BYTES:
            raise AnswerError(
                Fault.TOO_LONG, f"The copied lines are longer than {MAX_SOURCE_BYTES // 1024} KiB together."
            )
        return [_moved(line, _indent(found[0]), begun["indent"]) for line in found]

    def _only_place(self, line: str) -> int:
        """Return the number of the only line with that text. Raises AnswerError."""
        if self.lines == [""]:
            raise AnswerError(Fault.NO_BASIS, f"{FROM}: there is no kernel to copy from. Write all lines.")
        found, shown = self.places.get(squeezed(line), []) if line else [], line[:80]
        if not found:
            raise AnswerError(Fault.MALFORMED_EDIT, f"{FROM}: there is no line “{shown}” in the source.")
        if len(found) > 1:
            named = ", ".join(str(place + 1) for place in found[:MOST_PLACES])
            raise AnswerError(
                Fault.SEARCH_AMBIGUOUS,
                f"{FROM}: the line “{shown}” occurs {len(found)} times, at lines {named}. Begin at a line that occurs "
                "once, or write these lines.",
            )
        return found[0]


def _named(mark: re.Match[str]) -> str:
    """Return the text of the line that a mark names."""
    line = mark["line"].strip()
    return line.removesuffix("*/").rstrip() if mark["comment"] else line


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _moved(line: str, old: str, new: str) -> str:
    """Return a line indented by as much more or less as the new indentation is than the old one.

    Blank lines and directives of the preprocessor stay.
    """
    own = _indent(line)
    if not line.strip() or line.startswith("#"):
        return line
    if line.startswith(old):
        return new + line[len(old) :]
    return new[: max(0, len(new) - len(old) + len(own))] + line.lstrip()
