"""Find blocks of lines in a text in linear time, however often their lines repeat.

Models quote lines of a kernel and the site looks them up, so both sides may be hostile: comparing a block with every
place costs the product of their lengths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# A caller names a few of the places, never all of them.
MOST_PLACES = 5


@dataclass
class Places:
    """Hold how often a block occurs, and the lines (from 0) at which its first occurrences begin."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, count: int, first: Sequence[int]) -> None:
        """Add occurrences, given as their number and the first of them."""
        self.count += count
        if len(self.first) < MOST_PLACES or first[0] < self.first[-1]:
            self.first = sorted([*self.first, *first])[:MOST_PLACES]


def squeezed(line: str) -> str:
    """Return a line without indentation and with single spaces: who quotes lines may indent them anew."""
    return " ".join(line.split())


def find_blocks(blocks: Sequence[Sequence[str]], lines: Sequence[str]) -> list[Places]:
    """Return where each block occurs in `lines`. Blocks must not be empty; occurrences may overlap.

    Aho and Corasick, "Efficient string matching" (1975), with lines in place of characters. The time is linear in the
    number of all lines together.
    """
    machine = _Machine(blocks, set(lines))
    found = machine.search(lines)
    return [
        Places(found[end].count, [last - len(block) + 1 for last in found[end].first]) if end in found else Places()
        for block, end in zip(blocks, machine.ends, strict=True)
    ]


def common_prefixes(pattern: Sequence[str], lines: Sequence[str]) -> list[int]:
    """Return for each place of `lines` how many of its next lines equal the beginning of `pattern`.

    The Z-algorithm (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997, section 1.4).
    """
    # None equals no line, so that no prefix reaches beyond the pattern.
    joined: list[str | None] = [*pattern, None, *lines]
    lengths = [0] * len(joined)
    left = right = 0
    for at in range(1, len(joined)):
        length = min(lengths[at - left], right - at) if at < right else 0
        while at + length < len(joined) and joined[length] == joined[at + length]:
            length += 1
        if at + length > right:
            left, right = at, at + length
        lengths[at] = length
    return lengths[len(pattern) + 1 :]


class _Machine:
    """Hold the blocks as a tree of lines whose nodes are numbered by depth; the root is 0.

    `ends` has the node of each block's last line, or -1 where a line of the block is not among the `known` ones.
    """

    def __init__(self, blocks: Sequence[Sequence[str]], known: Collection[str]) -> None:
        self._edges: dict[tuple[int, str], int] = {}
        self._fallback = [0]
        self.ends = [0 if all(line in known for line in block) else -1 for block in blocks]
        growing = [number for number, end in enumerate(self.ends) if not end]
        depth = 0
        # All blocks grow by one line at a time. So every edge that a fallback needs, which is shorter, is there.
        while growing:
            for number in growing:
                self.ends[number] = self._child(self.ends[number], blocks[number][depth])
            depth += 1
            growing = [number for number in growing if len(blocks[number]) > depth]

    def _child(self, node: int, line: str) -> int:
        child = self._edges.get((node, line))
        if child is None:
            fallback = self._step(self._fallback[node], line) if node else 0
            child = self._edges[node, line] = len(self._fallback)
            self._fallback.append(fallback)
        return child

    def _step(self, node: int, line: str) -> int:
        """Return the longest path of the tree with which the lines read so far end."""
        while node and (node, line) not in self._edges:
            node = self._fallback[node]
        return self._edges.get((node, line), 0)

    def search(self, lines: Sequence[str]) -> dict[int, Places]:
        """Return for each node whose path occurs how often it does, and at which lines the first ones end."""
        found: defaultdict[int, Places] = defaultdict(Places)
        node = 0
        for number, line in enumerate(lines):
            node = self._step(node, line)
            found[node].add(1, [number])
        # A path contains that of its fallback. Adding up once, deepest first, walks no chain of fallbacks twice.
        for node in range(len(self._fallback) - 1, 0, -1):
            if node in found:
                found[self._fallback[node]].add(found[node].count, found[node].first)
        return found
