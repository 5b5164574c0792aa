"""Write Markdown around text from outside."""

from __future__ import annotations

import re

_BACKTICKS = re.compile("`+")


def fenced(text: str, label: str = "") -> str:
    """Return the text as a code block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{label}\n{text.rstrip()}\n{fence}"
