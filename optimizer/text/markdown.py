"""Write Markdown around text from outside."""

from __future__ import annotations

import re

_BACKTICKS = re.compile("`+")
_SUGGESTION = re.compile(r"^(`{3,})suggestion[ \t]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)


def fenced(text: str, label: str = "") -> str:
    """Return the text as a code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{label}\n{text.rstrip()}\n{fence}"


def suggested_lines(text: str) -> list[str] | None:
    """Return the lines of the first code block labelled `suggestion`, as on GitHub; None without one."""
    found = _SUGGESTION.search(text.replace("\r\n", "\n"))
    return None if found is None else found[2].removesuffix("\n").split("\n") if found[2] else []
