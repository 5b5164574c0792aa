"""Highlight the syntax of a few lines of a long text without lexing all of it.

Lexing dominates the cost of a diff of long files. It may begin at any line that is not inside a comment, string or
continued directive. One pass of a regular expression finds those spans, and the lexer reads only what is shown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, Token, _TokenType

from runners.job import Language

# Pairs of (CSS class, text) that together make up one line.
Tokens = Sequence[tuple[str, str]]

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
_C_SPANS = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|R"(\w{0,16})\(.*?(?:\)\1"|\Z)'
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\\\n',
    re.DOTALL,
)
_PYTHON_SPANS = re.compile(
    r'\#[^\n]*|"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)'
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)
_SPANS = {"cpp": _C_SPANS, "cuda": _C_SPANS, "python": _PYTHON_SPANS}


def coloured(lines: Sequence[str], wanted: Iterable[int], language: str) -> dict[int, Tokens]:
    """Return the tokens of the wanted lines (indices from 0)."""
    name = LEXERS.get(language, "text")
    inside = _lines_inside(tuple(lines), name)
    found: dict[int, Tokens] = {}
    for first, last in _blocks(sorted(wanted)):
        start = first
        # Go back to a line at which a lexer may begin.
        while start in inside:
            start -= 1
        block = _lexed(lines[start : last + 1], name)
        found.update((start + offset, tokens) for offset, tokens in enumerate(block) if start + offset >= first)
    return found


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


def _lexed(lines: Sequence[str], name: str) -> list[Tokens]:
    """Return the tokens line by line, without colour for texts that would take a lexer too long."""
    if name == "text" or sum(map(len, lines)) > MOST_CHARACTERS or any(len(line) > LONGEST_LINE for line in lines):
        return [plain(line) for line in lines]
    result: list[list[tuple[str, str]]] = [[]]
    for kind, text in _lexer(name).get_tokens("\n".join(lines)):
        first, *others = text.split("\n")
        css = _css_class(kind)
        if first:
            result[-1].append((css, first))
        for piece in others:
            result.append([(css, piece)] if piece else [])
    return _whole(result, lines)


def _whole(found: Sequence[Tokens], lines: Sequence[str]) -> list[Tokens]:
    """Return the lexer's result only where it kept the text: Pygments turns CR into LF, which would shift lines."""
    if len(found) >= len(lines) and all("".join(t for _, t in found[n]) == line for n, line in enumerate(lines)):
        return list(found[: len(lines)])
    return [plain(line) for line in lines]


@lru_cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=True)


@lru_cache(maxsize=512)
def _css_class(kind: _TokenType) -> str:
    while kind not in STANDARD_TYPES and kind is not Token:
        kind = kind.parent
    return str(STANDARD_TYPES.get(kind, ""))
