"""Parse STARK's grounded instructions: anchors in the source that mark where to change it (arXiv 2510.16996, section
4.3).

The planner brackets the block to change with two comment lines, `<<<IMPROVE BEGIN>>>` and `<<<IMPROVE END>>>` (BEGINS
and ENDS are accepted), and writes its advice as comments inside. The block is looked up in the real source, and
everything around it is taken from there. So an answer may leave the rest out, and cannot change, drop or reorder any of
it. The coder returns new content for the marked blocks alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise

from optimizer.agents.line_search import common_prefixes, squeezed

# A change may need a second place, such as an include or a helper. More places are more than one instruction.
MOST_BLOCKS = 4
# Lines of up to so many characters, such as a closing brace, occur everywhere and prove no copying.
SHORT_LINE = 8
# So many longer lines around its blocks tell a complete file from the content of a block.
LONG_LINES = 3
BEGIN, END = "<<<IMPROVE BEGIN>>>", "<<<IMPROVE END>>>"
_BEGIN = re.compile(r"<{2,3}\s*IMPROVE\s+BEGINS?\s*>{2,3}", re.IGNORECASE)
_END = re.compile(r"<{2,3}\s*IMPROVE\s+ENDS?\s*>{2,3}", re.IGNORECASE)
_MARK = re.compile(r"<{2,3}\s*IMPROVE\s+(?:BEGIN|END)S?\s*>{2,3}", re.IGNORECASE)
# A mark behind code: the comment goes with it where nothing else is in it.
_MARK_BEHIND = re.compile(rf"(?:(?://|#)\s*{_MARK.pattern}\s*$|/\*\s*{_MARK.pattern}\s*\*/)", re.IGNORECASE)
# A line that is a comment with a mark first in it, or a bare mark.
_MARK_LINE = re.compile(
    rf"\s*(?:(?://|#)[^\w\"'<]*{_MARK.pattern}.*|/\*[^\w\"'<]*{_MARK.pattern}[^*]*\*+/\s*|{_MARK.pattern}\s*)$",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"^\s*(?://|#|/\*|\*)\s?(?:\*/)?")
_ADVICE = re.compile(r"^\s*(?://|#) advice: ?")
_HASH_COMMENTS = ("python", "triton")


class AnchorError(ValueError):
    """Report unusable anchors; the message is addressed to the planner."""


@dataclass(frozen=True)
class Marked:
    """Hold a block as the planner wrote it, and the lines between it and the previous block."""

    before: tuple[str, ...]
    block: tuple[str, ...]


@dataclass(frozen=True)
class Anchored:
    """Hold a source with its marked blocks.

    `spans` are the blocks as pairs of line numbers, from 0, the second one exclusive. `advice` holds the advice for
    each of them.
    """

    lines: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    advice: tuple[str, ...]

    def blocks(self) -> list[str]:
        """Return the text of every marked block as it stands in the source."""
        return ["\n".join(self.lines[start:end]) for start, end in self.spans]

    def unmarked(self) -> list[str]:
        """Return the lines outside the marked blocks."""
        return [line for part in self._around() for line in part]

    def contents_in(self, file: str) -> list[str] | None:
        """Return the content of every marked block in a complete file, None if the file differs outside the blocks.

        Trailing spaces outside the blocks and blank lines at the file's ends are not compared. A block is taken to end
        before the first occurrence of the lines that follow it in the source.
        """
        if not self.spans:
            return None
        own = without_anchors(file).strip("\n").rstrip().split("\n")
        lines = _stripped(own)
        first, *between, last = map(_stripped, self._around())
        first, last = _without_blank_start(first), _without_blank_start(last[::-1])[::-1]
        start, end = len(first), len(lines) - len(last)
        if end < start or lines[:start] != first or lines[end:] != last:
            return None
        found, at = [], start
        for part in between:
            same = common_prefixes(part, lines[:end])
            here = next(
                (place for place in range(at, end + 1 - len(part)) if not part or same[place] == len(part)), None
            )
            if here is None:
                return None
            found.append("\n".join(own[at:here]))
            at = here + len(part)
        return [*found, "\n".join(own[at:end])]

    def is_mostly_unmarked(self) -> bool:
        """Return whether so many lines are outside the blocks that a text with all of them is a complete file."""
        return sum(len(line.strip()) > SHORT_LINE for line in self.unmarked()) >= LONG_LINES

    def _around(self) -> list[tuple[str, ...]]:
        """Return the unmarked lines before, between and behind the blocks."""
        edges = [0, *(edge for span in self.spans for edge in span), len(self.lines)]
        return [self.lines[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]

    def text(self, language: str) -> str:
        """Return the source with anchors, and the advice as comments of the language."""
        mark = "#" if language in _HASH_COMMENTS else "//"
        written = []
        for (start, end), advice in zip(self.spans, self.advice, strict=True):
            told = [f"{mark} advice: {line}".rstrip() for line in advice.splitlines()]
            written.append([f"{mark} {BEGIN}", *told, *self.lines[start:end], f"{mark} {END}"])
        return self._with_spans(written)

    def replaced(self, blocks: Sequence[str]) -> str:
        """Return the source with new content in its marked blocks, and nothing else changed.

        Anchors and advice that the content repeats are left out: they would look like marks of the next plan.
        """
        own = [_without_marks(new.split("\n")) for new in blocks]
        return self._with_spans([new.strip("\n").split("\n") if new.strip() else [] for new in map("\n".join, own)])

    def _with_spans(self, contents: Sequence[Sequence[str]]) -> str:
        """Return the source with these lines in place of the marked blocks."""
        written: list[str] = []
        position = 0
        for (start, end), lines in zip(self.spans, contents, strict=True):
            written += [*self.lines[position:start], *lines]
            position = end
        return "\n".join([*written, *self.lines[position:]])


def _stripped(lines: Sequence[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _without_blank_start(lines: Sequence[str]) -> list[str]:
    return list(dropwhile(lambda line: not line, lines))


def without_anchors(source: str) -> str:
    """Return a source without anchors and the advice that came with them; a source without anchors is unchanged."""
    return "\n".join(_without_marks(source.split("\n"))) if _MARK.search(source) else source


def marked_blocks(text: str) -> list[Marked]:
    """Return the blocks that a planner has marked. Raises AnchorError when anchors are missing, repeated or out of
    order.
    """
    if not _BEGIN.search(text):
        raise AnchorError(f"The anchor {BEGIN} is missing. It must stand in a comment line of its own.")
    found: list[Marked] = []
    outside: list[str] = []
    inside: list[str] | None = None
    for line in text.splitlines():
        begins, ends = bool(_BEGIN.search(line)), bool(_END.search(line))
        if begins and inside is not None:
            raise AnchorError(f"{BEGIN} occurs again before {END}. Close a block before the next one begins.")
        if ends and inside is None:
            raise AnchorError(f"{END} stands before {BEGIN}. Put the block between them.")
        if begins:
            inside = []
        elif ends:
            found.append(Marked(tuple(outside), tuple(inside or ())))
            inside, outside = None, []
        else:
            (outside if inside is None else inside).append(line)
    if inside is not None:
        raise AnchorError(f"The anchor {END} is missing. It must stand in a comment line of its own.")
    if len(found) > MOST_BLOCKS:
        raise AnchorError(f"{len(found)} blocks are marked. Mark the one to change, or up to {MOST_BLOCKS}.")
    return found


def place(text: str, source: str) -> Anchored:
    """Find the planner's blocks in the source. Raises AnchorError when a block is missing there or occurs twice.

    Anchors of an earlier plan are removed from the source first.
    """
    lines = without_anchors(source).split("\n")
    known = [(number, short) for number, line in enumerate(lines) if (short := squeezed(line))]
    spans, advice = [], []
    for marked in marked_blocks(text):
        block, told = _without_advice(marked.block, {short for _, short in known})
        spans.append(_span(block, marked.before, known))
        advice.append(told)
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        raise AnchorError("The blocks overlap or are not in the order of the source.")
    return Anchored(tuple(lines), tuple(spans), tuple(advice))


def read_anchored(text: str) -> Anchored:
    """Parse the output of `Anchored.text`."""
    lines: list[str] = []
    spans: list[tuple[int, int]] = []
    advice: list[str] = []
    told: list[str] = []
    start = 0
    for line in text.split("\n"):
        if _BEGIN.search(line):
            start, told = len(lines), []
        elif _END.search(line):
            spans.append((start, len(lines)))
            advice.append("\n".join(told))
        elif len(lines) == start and len(spans) == len(advice) and _ADVICE.match(line):
            told.append(_ADVICE.sub("", line))
        else:
            lines.append(line)
    return Anchored(tuple(lines), tuple(spans), tuple(advice))


def _without_marks(lines: Sequence[str]) -> list[str]:
    """Return the lines that are neither anchor nor advice; code beside an anchor stays."""
    kept = [line for line in lines if not _MARK_LINE.match(line) and not _ADVICE.match(line)]
    return [_MARK.sub("", _MARK_BEHIND.sub("", line)).rstrip() if _MARK.search(line) else line for line in kept]


def _without_advice(block: Sequence[str], known: set[str]) -> tuple[list[str], str]:
    """Return the lines of a block that the source has, squeezed, and the comments that it lacks: the advice."""
    own: list[str] = []
    advice: list[str] = []
    for line in block:
        short = squeezed(line)
        if _COMMENT.match(line) and short not in known:
            advice.append(re.sub(r"^advice: ?", "", _COMMENT.sub("", line).rstrip(), flags=re.IGNORECASE))
        elif short:
            own.append(short)
    return own, "\n".join(advice).strip()


def _span(block: Sequence[str], before: Sequence[str], known: Sequence[tuple[int, str]]) -> tuple[int, int]:
    """Return the lines of the source that a block covers; an empty block is a place after the line before it."""
    texts = [short for _, short in known]
    starts = [at for at, length in enumerate([*common_prefixes(block, texts), 0]) if length == len(block)]
    if len(starts) > 1:
        starts = _best_preceded(starts, [short for line in before if (short := squeezed(line))], texts)
    if not starts:
        raise AnchorError(
            f"The lines between the anchors are not in the source as they stand, for example "
            f"`{_first_foreign(block, texts)[:120]}`. Copy the block's lines exactly, complete and in their order; "
            "only your advice is added, as comments."
        )
    if len(starts) > 1:
        raise AnchorError("The marked lines occur several times in the source. Add lines before the first anchor.")
    if not block:
        after = known[starts[0] - 1][0] + 1 if starts[0] else 0
        return after, after
    return known[starts[0]][0], known[starts[0] + len(block) - 1][0] + 1


def _best_preceded(starts: Sequence[int], context: Sequence[str], texts: Sequence[str]) -> list[int]:
    """Return those of the places that have the most lines of the context before them."""
    backwards = common_prefixes(context[::-1], texts[::-1])[::-1]
    reach = {at: backwards[at - 1] if at else 0 for at in starts}
    furthest = max(reach.values())
    return [at for at in starts if reach[at] == furthest]


def _first_foreign(block: Sequence[str], texts: Sequence[str]) -> str:
    """Return the first line that the source lacks; where it has all of them, the first one."""
    known = set(texts)
    return next((line for line in block if line not in known), block[0] if block else "")
