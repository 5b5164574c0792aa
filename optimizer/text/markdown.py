"""Write Markdown around text from outside."""

from __future__ import annotations

import re

_BACKTICKS = re.compile("`+")
_SUGGESTION = re.compile(r"(`{3,})suggestion[ \t]*")


def fenced(text: str, label: str = "") -> str:
    """Return the text as a code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{label}\n{text.rstrip()}\n{fence}"


def suggested_lines(text: str) -> list[str] | None:
    """Return the lines of the first code block labelled `suggestion`, as on GitHub; None without one."""
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if found := _SUGGESTION.fullmatch(line):
            # A block without an end takes up all the rest, so looking for a later one would be wrong, and slow.
            rest = [after.rstrip(" \t") for after in lines[number:]]
            return lines[number : number + rest.index(found[1])] if found[1] in rest else None
    return None
