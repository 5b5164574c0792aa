"""A plan's blocks are those of the real source, and a coder changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.agents.anchors import AnchorError, place, read_anchored
from optimizer.agents.answer_base import Basis
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.kernel_answers import BlockAnswer

LINES = [f"float line_{number} = {number}.0f;" for number in range(1, 101)]
SOURCE = "\n".join(LINES) + "\n"
BEGIN, END = "// <<<IMPROVE BEGIN>>>", "// <<<IMPROVE END>>>"


def marked(start: int, end: int, *advice: str) -> str:
    """Return the lines from `start` to `end` between anchors, and nothing of the rest."""
    return "\n".join([BEGIN, *(f"// {line}" for line in advice), *LINES[start:end], END])


def answered(text: str, anchored: str) -> BlockAnswer:
    answer = parse_answer("BlockAnswer", text, basis=Basis(anchored, "cpp"))
    assert isinstance(answer, BlockAnswer)
    return answer


def fenced(*blocks: str) -> str:
    return "REPORT: done\n" + "\n".join(f"```cpp\n{block}\n```" for block in blocks)


@given(st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_whatever_a_planner_leaves_out_of_its_answer_stays_in_the_source(one: int, other: int, whole: bool) -> None:
    start, end = sorted((one, other))
    if start == end:
        return
    before, after = (LINES[:start], LINES[end:]) if whole else (["// …"], ["// unchanged"])
    found = place("\n".join([*before, marked(start, end, "do it"), *after]), SOURCE)
    assert found.spans == ((start, end),) and found.advice == ("do it",)
    assert "\n".join(found.lines) == SOURCE


def test_96_of_100_lines_left_out_and_the_rest_reordered_change_nothing() -> None:
    text = "\n".join([LINES[60], LINES[3], marked(10, 12), LINES[1]])
    assert "\n".join(place(text, SOURCE).lines) == SOURCE


@pytest.mark.parametrize(
    "block",
    [
        [LINES[12], LINES[10], LINES[11]],  # reordered
        [LINES[10], "// ... the rest as before ...", LINES[40]],  # elided
        [LINES[10], "float line_11 = 0.5f;"],  # changed
    ],
)
def test_a_block_that_the_source_does_not_have_is_sent_back(block: list[str]) -> None:
    with pytest.raises(AnchorError, match="not in the source as they stand"):
        place("\n".join([BEGIN, *block, END]), SOURCE)


def test_a_block_whose_lines_occur_twice_is_found_by_the_lines_before_it() -> None:
    source = "a();\nloop();\nb();\nloop();\n"
    text = f"{BEGIN}\nloop();\n{END}"
    with pytest.raises(AnchorError, match="several times"):
        place(text, source)
    assert place(f"b();\n{text}", source).spans == ((3, 4),)


@given(st.integers(0, 99), st.text("xyz \n", min_size=1, max_size=60))
def test_a_coders_answer_changes_the_marked_block_and_nothing_else(start: int, new: str) -> None:
    anchored = place(marked(start, start + 1, "faster"), SOURCE).text("cpp")
    source = answered(fenced(f"int changed;{new}"), anchored).source.split("\n")
    assert source[:start] == LINES[:start]
    assert source[len(source) - (100 - start) :] == [*LINES[start + 1 :], ""]
    assert "IMPROVE" not in "".join(source) and "advice" not in "".join(source)


def test_two_blocks_are_filled_in_their_order() -> None:
    anchored = place(f"{marked(2, 3)}\n{marked(50, 52)}", SOURCE).text("cpp")
    lines = answered(fenced("#include <cmath>\n" + LINES[2], "int b;"), anchored).source.split("\n")
    assert lines[2:4] == ["#include <cmath>", LINES[2]] and lines[51] == "int b;" and lines[52] == LINES[52]


def test_a_coder_may_edit_lines_of_its_block_and_of_nothing_else() -> None:
    anchored = place(marked(5, 9, "advice is not the source's"), SOURCE).text("cpp")

    def edit(line: str) -> str:
        return f"REPORT: done\n<<<<<<< SEARCH\n{line}\n=======\nint edited;\n>>>>>>> REPLACE"

    assert answered(edit(LINES[6]), anchored).source == SOURCE.replace(LINES[6], "int edited;")
    with pytest.raises(AnswerError, match="inside one marked block"):
        answered(edit(LINES[20]), anchored)


def test_a_coder_that_sends_the_whole_file_is_asked_for_the_block() -> None:
    anchored = place(marked(5, 9), SOURCE).text("cpp")
    with pytest.raises(AnswerError, match="repeats the file"):
        answered(fenced(SOURCE), anchored)
    with pytest.raises(AnswerError, match="Send one for each"):
        answered(fenced("int a;", "int b;"), anchored)


@given(st.integers(0, 98), st.lists(st.text("ab c", max_size=12), max_size=3))
def test_the_anchored_source_is_read_back_as_it_was_written(start: int, advice: list[str]) -> None:
    found = place(marked(start, start + 2, *advice), SOURCE)
    again = read_anchored(found.text("python"))
    assert (again.lines, again.spans) == (found.lines, found.spans)
