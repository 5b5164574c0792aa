"""Make up texts on which a regular expression takes longest: what it begins with, and what it repeats, many times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

REPEATS = tuple(getattr(op, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
# What ends a match that would otherwise succeed, or opens one that never ends.
ENDS = ("", "\\", "\n\x00")
MOST_BEGINNINGS = 8
Item = tuple[Any, Any]


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, units to repeat behind them, and ends."""
    tree = list(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    begun = sorted({"", *_beginnings(tree)}, key=lambda text: (len(text), text))[:MOST_BEGINNINGS]
    units = sorted({*_units(tree), " ", "a"} - {""}, key=lambda text: (len(text), text))[:MOST_BEGINNINGS]
    for before, unit, after in product(begun, units, ENDS):
        yield before, unit, after
        yield "", before + unit, after
    for before, after in product(begun, ENDS):
        if before:
            yield "", before, after
            yield "", before + "\n", after


def _beginnings(tree: list[Item]) -> Iterator[str]:
    """Yield an example of what every beginning of the expression matches."""
    before = [""]
    for item in tree:
        for inner in _inner(item):
            yield from (start + rest for start in before for rest in _beginnings(inner))
        before = [start + rest for start in before for rest in _examples(item)][:MOST_BEGINNINGS]
        yield from before


def _units(tree: list[Item]) -> Iterator[str]:
    """Yield an example of everything that is repeated without a limit to speak of."""
    for item in tree:
        kind, value = item
        if kind in REPEATS and value[1] > 16:
            yield from _all_examples(list(value[2]))
        for inner in _inner(item):
            yield from _units(inner)


def _inner(item: Item) -> list[list[Item]]:
    kind, value = item
    if kind in REPEATS:
        return [list(value[2])]
    if kind is op.SUBPATTERN:
        return [list(value[3])]
    if kind is op.BRANCH:
        return [list(branch) for branch in value[1]]
    if kind is op.ATOMIC_GROUP:
        return [list(value)]
    return []


def _all_examples(tree: list[Item]) -> list[str]:
    found = [""]
    for item in tree:
        found = [start + rest for start in found for rest in _examples(item)][:MOST_BEGINNINGS]
    return found


def _examples(item: Item) -> list[str]:
    """Return a few short texts that an item matches; an empty one for what matches between characters."""
    kind, value = item
    if kind is op.LITERAL:
        return [chr(value)]
    if kind is op.NOT_LITERAL:
        return [next(char for char in "a b" if ord(char) != value)]
    if kind is op.ANY:
        return ["a"]
    if kind is op.IN:
        return _of_class(value)
    if kind in REPEATS:
        least = max(value[0], 1)
        return ([""] if value[0] == 0 else []) + [text * least for text in _all_examples(list(value[2]))[:3]]
    found = [text for inner in _inner(item) for text in _all_examples(inner)[:4]]
    return found or [""]


def _of_class(members: list[Item]) -> list[str]:
    accepted = re.compile(_class_text(members), re.DOTALL)
    return [char for char in " \n\ta1\"'\\/*<`#([{.-_=:x\x1b" if accepted.match(char)][:3] or [_first(members)]


def _class_text(members: list[Item]) -> str:
    names = {
        op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
        op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D",
    }  # fmt: skip
    text = ""
    for kind, value in members:
        if kind is op.NEGATE:
            text = "^" + text
        elif kind is op.LITERAL:
            text += re.escape(chr(value))
        elif kind is op.RANGE:
            text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            text += names[value]
    return f"[{text}]"


def _first(members: list[Item]) -> str:
    kind, value = members[0]
    return chr(value[0] if kind is op.RANGE else value) if kind in (op.RANGE, op.LITERAL) else "a"
