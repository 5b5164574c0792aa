"""Detect moved blocks: removed in one place and added unchanged in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.diffs.differ import Opcode, Tag

LEAST_LINES = 3
# Minimum size of a moved block, in lines that are not blank and in characters: lone braces match everywhere.
LEAST_CHARACTERS = 40


def moved_lines(
    opcodes: Sequence[Opcode], a: Sequence[str], b: Sequence[str]
) -> tuple[dict[int, int], dict[int, int]]:
    """Map (old line → new line, new line → old line) of every moved block, from 0. Indentation may differ.

    Lines that are replaced by themselves, with another indentation or line end, have not moved.
    """
    removed, added = _changed(opcodes, old=True), _changed(opcodes, old=False)
    places: dict[str, list[int]] = {}
    for line in removed:
        places.setdefault(a[line].strip(), []).append(line)
    there: dict[int, int] = {}
    back: dict[int, int] = {}
    for start in added:
        # Skip lines of a block that was found already, and blank lines, which match everywhere.
        if start in back or not b[start].strip():
            continue
        old, length = _longest(start, places, removed, added, there, a, b)
        if _counts([b[start + n] for n in range(length)]):
            for n in range(length):
                there[old + n], back[start + n] = start + n, old + n
    return there, back


def _changed(opcodes: Sequence[Opcode], *, old: bool) -> dict[int, int]:
    """Return the changed lines of one side in their order, each with the number of its change."""
    kinds = {Tag.REPLACE, Tag.DELETE if old else Tag.INSERT}
    ranges = [(n, c.a0, c.a1) if old else (n, c.b0, c.b1) for n, c in enumerate(opcodes) if c.tag in kinds]
    return {line: number for number, start, end in ranges for line in range(start, end)}


def _longest(
    start: int,
    places: dict[str, list[int]],
    removed: Mapping[int, int],
    added: Mapping[int, int],
    taken: dict[int, int],
    a: Sequence[str],
    b: Sequence[str],
) -> tuple[int, int]:
    """Return the longest removed run that equals the added run at `start`, as (its old line, its length)."""
    best = (0, 0)
    # Look at few places only: in generated code one line may occur thousands of times.
    for old in places.get(b[start].strip(), [])[:20]:
        length = 0
        while (
            old + length in removed
            and start + length in added
            and removed[old + length] != added[start + length]
            # Each removed line is the source of at most one moved block.
            and old + length not in taken
            and a[old + length].strip() == b[start + length].strip()
        ):
            length += 1
        best = max(best, (old, length), key=lambda found: found[1])
    return best


def _counts(lines: Sequence[str]) -> bool:
    solid = [line.strip() for line in lines if line.strip()]
    return len(solid) >= LEAST_LINES and sum(map(len, solid)) >= LEAST_CHARACTERS
