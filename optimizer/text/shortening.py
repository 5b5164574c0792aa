"""Cut titles to the length of their column."""

from __future__ import annotations

MOST_TITLE = 200
"""Characters of a kernel's, a hypothesis's or an experiment's title."""


def shortened(text: str, most: int = MOST_TITLE) -> str:
    """Return a text in one line of at most `most` characters, cut between two words and with an ellipsis.

    A text without a space in its second half is cut within a word.
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    between = line.rfind(" ", 0, most)
    return f"{line[:between] if between >= most // 2 else line[: most - 1]}…"
