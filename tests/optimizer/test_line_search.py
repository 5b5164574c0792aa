"""Test that blocks of lines are found where a plain comparison finds them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optimizer.agents.line_search import MOST_PLACES, common_prefixes, find_blocks

# Few different lines, so that blocks overlap themselves and each other.
LINES = st.lists(st.sampled_from("abc"), max_size=30)
BLOCKS = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), max_size=6)


@given(BLOCKS, LINES)
def test_blocks_are_found_where_comparing_every_place_finds_them(blocks: list[list[str]], lines: list[str]) -> None:
    for block, found in zip(blocks, find_blocks(blocks, lines), strict=True):
        starts = [at for at in range(len(lines)) if lines[at : at + len(block)] == block]
        assert (found.count, found.first) == (len(starts), starts[:MOST_PLACES])


@given(LINES, LINES)
def test_common_prefixes_are_those_that_counting_gives(pattern: list[str], lines: list[str]) -> None:
    def counted(at: int) -> int:
        same = [one == other for one, other in zip(pattern, lines[at:], strict=False)]
        return [*same, False].index(False)

    assert common_prefixes(pattern, lines) == [counted(at) for at in range(len(lines))]
