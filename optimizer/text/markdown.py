"""Write Markdown around text from outside."""

from __future__ import annotations

import re

_BACKTICKS = re.compile("`+")
_FENCE = re.compile(r"(`{3,}+)(suggestion)?[ \t]*+")


def fenced(text: str, label: str = "") -> str:
    """Return the text as a code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{label}\n{text.rstrip()}\n{fence}"


def suggested_lines(text: str) -> list[str] | None:
    """Return the lines of the first code block labelled `suggestion`, as on GitHub; None without one."""
    lines = text.replace("\r\n", "\n").split("\n")
    fences = [
        (number, found[1], found[2]) for number, line in enumerate(lines) if (found := _FENCE.fullmatch(line))
    ]
    # A block that is never closed is none. Looking for the end of each would take quadratic time.
    last_closing = {mark: number for number, mark, label in fences if not label}
    opening = next((fence for fence in fences if fence[2] and last_closing.get(fence[1], -1) > fence[0]), None)
    if opening is None:
        return None
    start, mark, _ = opening
    end = next(number for number, other, label in fences if number > start and other == mark and not label)
    return lines[start + 1 : end]
