"""Compute line and token differences.

Patience anchors (Cohen) split the texts into regions; Myers' greedy algorithm compares each region, and a plain
replacement is used where even that would take too long. Any hashable items can be compared. Realistic edits cost
about O(n log n). A pathological pair is bounded by `most_edits` per region and by the steps of the whole comparison
(`_Effort`), and falls back to "replace everything", which is always a correct diff.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Edits that Myers' algorithm may need in one region before the region is replaced as a whole.
MOST_EDITS = 400
# Steps that a comparison may take: so many, and so many for each item. Realistic edits take a few for each item. Texts
# can be made in which every anchor splits off one line, and the next region is nearly as long.
STEPS, STEPS_PER_ITEM = 2_000_000, 50


class Tag(StrEnum):
    """Name the relation between an opcode's two ranges."""

    EQUAL = "equal"
    INSERT = "insert"
    DELETE = "delete"
    REPLACE = "replace"


@dataclass(frozen=True)
class Opcode:
    """State that a[a0:a1] becomes b[b0:b1]. Opcodes cover both sides completely, in order, without gaps."""

    tag: Tag
    a0: int
    a1: int
    b0: int
    b1: int


@dataclass(frozen=True)
class Match:
    """State that a[a0:a0+length] equals b[b0:b0+length]."""

    a0: int
    b0: int
    length: int


Region = tuple[int, int, int, int]


@dataclass
class _Effort:
    """Count the steps that a comparison may still take."""

    steps: int

    def spend(self, steps: int) -> bool:
        """Take steps off, and return whether there were as many."""
        self.steps -= steps
        return self.steps >= 0


def diff(a: Sequence[Hashable], b: Sequence[Hashable], most_edits: int = MOST_EDITS) -> list[Opcode]:
    """Return opcodes that turn `a` into `b`."""
    opcodes: list[Opcode] = []
    i = j = 0
    for match in [*matches(a, b, most_edits), Match(len(a), len(b), 0)]:
        if i < match.a0 or j < match.b0:
            opcodes.append(Opcode(_tag(match.a0 - i, match.b0 - j), i, match.a0, j, match.b0))
        i, j = match.a0 + match.length, match.b0 + match.length
        if match.length:
            opcodes.append(Opcode(Tag.EQUAL, match.a0, i, match.b0, j))
    return opcodes


def apply(opcodes: Sequence[Opcode], a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Hashable]:
    """Return `a` with the opcodes' replacements taken from `b`; it equals `b` for every diff of the two."""
    result: list[Hashable] = []
    for code in opcodes:
        result.extend(a[code.a0 : code.a1] if code.tag is Tag.EQUAL else b[code.b0 : code.b1])
    return result


def matches(a: Sequence[Hashable], b: Sequence[Hashable], most_edits: int = MOST_EDITS) -> list[Match]:
    """Return the maximal runs that are equal on both sides, in order."""
    left, right = _as_numbers(a, b)
    found: list[Match] = []
    regions: list[Region] = [(0, len(a), 0, len(b))]
    effort = _Effort(STEPS + STEPS_PER_ITEM * (len(a) + len(b)))
    # An explicit stack instead of recursion: the depth is not bounded for hostile texts.
    while regions:
        a0, a1, b0, b1 = regions.pop()
        head, tail = _trimmed(left, right, (a0, a1, b0, b1))
        # Trimming equal heads and tails is cheap and leaves most edits with a tiny region.
        found += [Match(a0, b0, head), Match(a1 - tail, b1 - tail, tail)]
        inner = (a0 + head, a1 - tail, b0 + head, b1 - tail)
        if inner[0] < inner[1] and inner[2] < inner[3] and effort.spend(a1 - a0 + b1 - b0):
            anchors = _anchors(left, right, inner)
            if anchors:
                regions += _between(anchors, inner)
                found += [Match(i, j, 1) for i, j in anchors]
            else:
                found += _myers(left, right, inner, most_edits, effort)
    return _merged(found)


def _tag(removed: int, added: int) -> Tag:
    if removed and added:
        return Tag.REPLACE
    return Tag.DELETE if removed else Tag.INSERT


def _as_numbers(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Replace equal items by equal small integers, because comparing long lines repeatedly would dominate the run
    time.
    """
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(x, len(numbers)) for x in a], [numbers.setdefault(x, len(numbers)) for x in b]


def _trimmed(left: list[int], right: list[int], region: Region) -> tuple[int, int]:
    """Return the lengths of the common head and of the common tail."""
    a0, a1, b0, b1 = region
    shorter = min(a1 - a0, b1 - b0)
    head = 0
    while head < shorter and left[a0 + head] == right[b0 + head]:
        head += 1
    tail = 0
    while tail < shorter - head and left[a1 - 1 - tail] == right[b1 - 1 - tail]:
        tail += 1
    return head, tail


def _anchors(left: list[int], right: list[int], region: Region) -> list[tuple[int, int]]:
    """Return items that occur once on each side of the region, as the longest sequence in the same order on both."""
    a0, a1, b0, b1 = region
    # Lines such as `}` occur everywhere and match by accident; unique lines are reliable anchors.
    once_left = _unique_places(left, a0, a1)
    once_right = _unique_places(right, b0, b1)
    pairs = [(i, once_right[item]) for item, i in once_left.items() if item in once_right]
    return _longest_rising(pairs)


def _unique_places(items: list[int], start: int, end: int) -> dict[int, int]:
    counts = Counter(items[start:end])
    return {items[place]: place for place in range(start, end) if counts[items[place]] == 1}


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence that rises in both coordinates, by patience sorting; `pairs` rise in the first."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        # `ends[p]` is the smallest end of any rising sequence of length p + 1, so a binary search finds the longest
        # one that j can extend.
        pile = bisect_left(ends, j)
        before.append(last[pile - 1] if pile else -1)
        if pile == len(ends):
            ends.append(j)
            last.append(index)
        else:
            ends[pile], last[pile] = j, index
    chain = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _between(anchors: list[tuple[int, int]], region: Region) -> Iterator[Region]:
    a0, a1, b0, b1 = region
    for i, j in anchors:
        yield a0, i, b0, j
        a0, b0 = i + 1, j + 1
    yield a0, a1, b0, b1


def _myers(left: list[int], right: list[int], region: Region, most_edits: int, effort: _Effort) -> list[Match]:
    """Return the matches of Myers' greedy shortest edit script (1986), or none after `most_edits` edits or too many
    steps.

    k = x - y        diagonal; x and y are positions in the two regions
    furthest[k]      furthest x reached on diagonal k with the current number of edits
    """
    a0, a1, b0, b1 = region
    n, m = a1 - a0, b1 - b0
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    advanced = 0
    for edits in range(min(n + m, most_edits) + 1):
        if not effort.spend(edits + advanced):
            break
        advanced = 0
        # Remember each round: the path is reconstructed backwards from the end.
        trace.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            # Extend whichever neighbouring diagonal reaches further: down inserts an item of b, right deletes one
            # of a.
            down = k == -edits or (k != edits and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
            start = x = furthest.get(k + 1, 0) if down else furthest[k - 1] + 1
            while x < n and 0 <= x - k < m and left[a0 + x] == right[b0 + x - k]:
                x += 1
            furthest[k] = x
            advanced += x - start
            if x >= n and x - k >= m:
                return _walk_back(trace, (n, m), (a0, b0))
    return []


def _walk_back(trace: list[dict[int, int]], end: tuple[int, int], origin: tuple[int, int]) -> list[Match]:
    x, y = end
    found: list[Match] = []
    for edits in range(len(trace) - 1, -1, -1):
        furthest = trace[edits]
        k = x - y
        down = k == -edits or (k != edits and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
        previous_k = k + 1 if down else k - 1
        px = furthest.get(previous_k, 0) if edits else 0
        py = px - previous_k if edits else 0
        start = px if down else px + 1
        run = x - start if edits else x
        if run > 0:
            found.append(Match(origin[0] + x - run, origin[1] + y - run, run))
        x, y = px, py
    return found


def _merged(found: list[Match]) -> list[Match]:
    merged: list[Match] = []
    for match in sorted((m for m in found if m.length), key=lambda m: m.a0):
        last = merged[-1] if merged else None
        if last and last.a0 + last.length == match.a0 and last.b0 + last.length == match.b0:
            merged[-1] = Match(last.a0, last.b0, last.length + match.length)
        else:
            merged.append(match)
    return merged
