"""Highlight the syntax of a few lines of a long text without lexing all of it.

Lexing dominates the cost of a diff of long files. It may begin at any line that is not inside a comment, string or
continued directive. One pass of a regular expression finds those spans, and the lexer reads only what is shown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from optimizer.text.renderer import RENDERER, RenderingError
from optimizer.text.rendering import Tokens
from runners.job import Language

# Longer lines are generated and may take a regular expression very long, so they get no colour.
LONGEST_LINE = 2_000
MOST_CHARACTERS = 400_000
# Visible lines closer together than this are lexed in one go.
BLOCK = 12
LEXERS: dict[str, str] = {
    Language.CPP: "cpp",
    Language.HIP: "cuda",
    Language.CUDA: "cuda",
    Language.TRITON: "python",
    Language.PYTHON: "python",
    "assembly": "gas",
}
# What has no end reaches to the end of its line or of the text: looking for one at every quote would take quadratic
# time.
_C_SPANS = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|R"(\w{0,16})\(.*?(?:\)\1"|\Z)'
    r'|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n])*+\'?|\\\n',
    re.DOTALL,
)
_PYTHON_SPANS = re.compile(
    r'\#[^\n]*|"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)'
    r'|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n])*+\'?',
    re.DOTALL,
)
_SPANS = {"cpp": _C_SPANS, "cuda": _C_SPANS, "python": _PYTHON_SPANS}


def coloured(lines: Sequence[str], wanted: Iterable[int], language: str) -> dict[int, Tokens]:
    """Return the tokens of the wanted lines (indices from 0)."""
    name = LEXERS.get(language, "text")
    inside = _lines_inside(tuple(lines), name)
    found: dict[int, Tokens] = {}
    for start, last in _whole_blocks(_blocks(sorted(wanted)), inside):
        block = lexed(lines[start : last + 1], name)
        found.update((start + offset, tokens) for offset, tokens in enumerate(block))
    return found


def _whole_blocks(blocks: Iterable[tuple[int, int]], inside: Collection[int]) -> list[tuple[int, int]]:
    """Move the beginnings back to lines at which a lexer may begin, and join the blocks that then overlap."""
    whole: list[tuple[int, int]] = []
    for first, last in blocks:
        start = first
        while start in inside and not (whole and start <= whole[-1][1]):
            start -= 1
        # Within one long comment every block would begin with the comment, and lex all of it.
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], last)
        else:
            whole.append((start, last))
    return whole


def plain(line: str) -> Tokens:
    """Return a line without colour."""
    return [("", line)]


@lru_cache(maxsize=32)
def _lines_inside(lines: tuple[str, ...], name: str) -> frozenset[int]:
    """Return the lines that begin inside a span which started on an earlier line."""
    # Languages without a pattern, such as assembly, have no spans over several lines.
    pattern = _SPANS.get(name)
    if pattern is None:
        return frozenset()
    text = "\n".join(lines)
    starts, place = [], 0
    for line in lines:
        starts.append(place)
        place += len(line) + 1
    inside: set[int] = set()
    for match in pattern.finditer(text):
        if "\n" in match.group():
            first, last = bisect_right(starts, match.start()), bisect_right(starts, match.end() - 1)
            inside.update(range(first, last + match.group().endswith("\n")))
    return frozenset(inside)


def _blocks(wanted: Sequence[int]) -> Iterable[tuple[int, int]]:
    first = last = None
    for line in wanted:
        if first is None or last is None or line - last > BLOCK:
            if first is not None and last is not None:
                yield first, last
            first = line
        last = line
    if first is not None and last is not None:
        yield first, last


def lexed(lines: Sequence[str], name: str) -> list[Tokens]:
    """Return the tokens line by line, without colour for texts that take a lexer too long."""
    if name == "text" or sum(map(len, lines)) > MOST_CHARACTERS or any(len(line) > LONGEST_LINE for line in lines):
        return [plain(line) for line in lines]
    try:
        return _whole(RENDERER.render("lexed", name, list(lines)), lines)
    except RenderingError:
        return [plain(line) for line in lines]


def _whole(found: Sequence[Tokens], lines: Sequence[str]) -> list[Tokens]:
    """Return the lexer's result only where it kept the text: Pygments turns CR into LF, which would shift lines."""
    if len(found) >= len(lines) and all("".join(t for _, t in found[n]) == line for n, line in enumerate(lines)):
        return list(found[: len(lines)])
    return [plain(line) for line in lines]
