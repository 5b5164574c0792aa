"""Parse STARK's grounded instructions: anchors in the source that mark where to change it (arXiv 2510.16996, section
4.3).

The planner returns the whole source with the block to change between two comment lines, `<<<IMPROVE BEGIN>>>` and
`<<<IMPROVE END>>>` (BEGINS and ENDS are accepted), and its advice as comments inside. Before the coder is called, two
things are checked: each anchor occurs once and in order, and the source outside the block is unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGIN = re.compile(r"<{2,3}\s*IMPROVE\s+BEGINS?\s*>{2,3}", re.IGNORECASE)
_END = re.compile(r"<{2,3}\s*IMPROVE\s+ENDS?\s*>{2,3}", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*(?://|#|/\*|\*)\s?")
# Share of lines outside the block that may differ, as planners tidy white space and wrap lines.
MOST_FOREIGN_LINES = 0.05


class AnchorError(ValueError):
    """Report unusable anchors; the message is addressed to the planner."""


@dataclass(frozen=True)
class Anchored:
    """Hold a source split at its anchors. `advice` is the text of the comments inside the block."""

    before: tuple[str, ...]
    block: tuple[str, ...]
    after: tuple[str, ...]
    advice: str


def split_at_anchors(text: str) -> Anchored:
    """Split the text at its anchors. Raises AnchorError when they are missing, repeated or out of order."""
    lines = text.splitlines()
    begin = _only(lines, _BEGIN, "<<<IMPROVE BEGIN>>>")
    end = _only(lines, _END, "<<<IMPROVE END>>>")
    if end <= begin:
        raise AnchorError("<<<IMPROVE END>>> stands before <<<IMPROVE BEGIN>>>. Put the block between them.")
    block = lines[begin + 1 : end]
    advice = "\n".join(_COMMENT.sub("", line).rstrip() for line in block if _COMMENT.match(line))
    return Anchored(tuple(lines[:begin]), tuple(block), tuple(lines[end + 1 :]), advice.strip())


def check_against(anchored: Anchored, source: str) -> None:
    """Raise AnchorError when the planner changed the source outside its block."""
    # Compare lines as a set without white space: planners re-indent and wrap, which is harmless.
    known = {_squeezed(line) for line in source.splitlines()}
    outside = [squeezed for line in (*anchored.before, *anchored.after) if (squeezed := _squeezed(line))]
    foreign = [line for line in outside if line not in known]
    if len(foreign) > max(1, MOST_FOREIGN_LINES * len(outside)):
        raise AnchorError(
            f"{len(foreign)} lines outside the anchors are not in the source you were given, for example "
            f"`{foreign[0][:120]}`. Return the source unchanged but for the anchors and the advice between them."
        )


def _only(lines: list[str], pattern: re.Pattern[str], name: str) -> int:
    found = [number for number, line in enumerate(lines) if pattern.search(line)]
    if len(found) != 1:
        count = "is missing" if not found else f"occurs {len(found)} times"
        raise AnchorError(f"The anchor {name} {count}. It must stand in exactly one comment line of the source.")
    return found[0]


def _squeezed(line: str) -> str:
    return " ".join(line.split())
