"""Find the changed characters of a line, token by token, and pair old lines with new ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.diffs.differ import Tag, diff

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
# Lines with more tokens are not compared token by token.
MOST_TOKENS = 400
# Lines that share a smaller part of their tokens are shown as replaced.
LEAST_ALIKE = 0.3
# In blocks with more lines, old and new lines are paired in order.
MOST_PAIRED = 60

Span = tuple[int, int]


@dataclass(frozen=True)
class Marks:
    """Hold half-open ranges of changed characters, on the old and on the new line."""

    old: tuple[Span, ...] = ()
    new: tuple[Span, ...] = ()


def mark(old: str, new: str) -> Marks:
    """Return the changed ranges of a line pair, or none where the lines have too little in common."""
    old_tokens, new_tokens = _TOKEN.findall(old), _TOKEN.findall(new)
    # Generated code has lines of thousands of tokens, where the comparison would take seconds.
    if max(len(old_tokens), len(new_tokens)) > MOST_TOKENS or likeness(old, new) < LEAST_ALIKE:
        return Marks()
    old_starts, new_starts = _starts(old_tokens), _starts(new_tokens)
    changed = [code for code in diff(old_tokens, new_tokens) if code.tag is not Tag.EQUAL]
    return Marks(
        tuple((old_starts[c.a0], old_starts[c.a1]) for c in changed if c.a1 > c.a0),
        tuple((new_starts[c.b0], new_starts[c.b1]) for c in changed if c.b1 > c.b0),
    )


def likeness(old: str, new: str) -> float:
    """Return the share of tokens that both lines have, from 0 to 1; white space does not count."""
    return _alike(_solid(old), _solid(new))


def _solid(line: str) -> Counter[str]:
    return Counter(token for token in _TOKEN.findall(line) if not token.isspace())


def _alike(left: Counter[str], right: Counter[str]) -> float:
    total = left.total() + right.total()
    if not total:
        return 1.0
    # Iterate over the smaller counter: this function is called for every pair of lines of a block.
    few, many = (left, right) if len(left) <= len(right) else (right, left)
    return 2 * sum(min(count, many[token]) for token, count in few.items() if token in many) / total


def pair_lines(
    old: Sequence[str], new: Sequence[str], *, alike: bool = True
) -> list[tuple[int | None, int | None]]:
    """Return the rows of a replaced block: (old index, new index), with None where one side has no line.

    Both orders are kept and the total likeness of the pairs is maximised. With `alike` False, or in a long block,
    lines are paired in order.
    """
    if not alike or len(old) > MOST_PAIRED or len(new) > MOST_PAIRED:
        return _in_order(len(old), len(new))
    score = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    left, right = [_solid(line) for line in old], [_solid(line) for line in new]
    likeness_of = [[_alike(x, y) for y in right] for x in left]
    # Dynamic programming from the end, as for the longest common subsequence, with likeness as the weight of a
    # pair.
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            here = likeness_of[i][j]
            paired = here + score[i + 1][j + 1] if here >= LEAST_ALIKE else 0.0
            score[i][j] = max(paired, score[i + 1][j], score[i][j + 1])
    return _rows(score)


def _rows(score: list[list[float]]) -> list[tuple[int | None, int | None]]:
    rows: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < len(score) - 1 or j < len(score[0]) - 1:
        if i == len(score) - 1:
            rows.append((None, j))
            j += 1
        elif j == len(score[0]) - 1 or score[i][j] == score[i + 1][j]:
            rows.append((i, None))
            i += 1
        elif score[i][j] == score[i][j + 1]:
            rows.append((None, j))
            j += 1
        else:
            rows.append((i, j))
            i, j = i + 1, j + 1
    return rows


def _in_order(old: int, new: int) -> list[tuple[int | None, int | None]]:
    return [(n if n < old else None, n if n < new else None) for n in range(max(old, new))]


def _starts(tokens: Sequence[str]) -> list[int]:
    """Return where each token starts, and where the last one ends."""
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    return starts
