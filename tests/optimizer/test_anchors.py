"""A plan's blocks are those of the real source, and a coder changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.agents.anchors import Anchored, AnchorError, place, read_anchored, without_anchors
from optimizer.agents.answer_base import Basis
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.kernel_answers import BlockAnswer, KernelAnswer

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


def test_a_coder_may_send_the_whole_file_if_only_its_blocks_differ() -> None:
    anchored = place(f"{marked(5, 9)}\n{marked(50, 52)}", SOURCE).text("cpp")
    changed = SOURCE.replace(LINES[6], "int first;\nint more;").replace(LINES[51], "int second;")
    assert answered(fenced(changed), anchored).source == changed
    assert answered(fenced(SOURCE), anchored).source == SOURCE


@pytest.mark.parametrize("line", [4, 30, 52, 99])
def test_a_coder_whose_whole_file_differs_elsewhere_is_asked_for_the_blocks(line: int) -> None:
    one = place(marked(5, 9), SOURCE).text("cpp")
    two = place(f"{marked(5, 9)}\n{marked(50, 52)}", SOURCE).text("cpp")
    with pytest.raises(AnswerError, match="repeats the file"):
        answered(fenced(SOURCE.replace(LINES[line], "int other;")), one)
    with pytest.raises(AnswerError, match="Send one for each"):
        answered(fenced(SOURCE.replace(LINES[line], "int other;")), two)


@given(
    st.lists(st.sampled_from(["int unmarked_1;", "int unmarked_2;", "", "}", "int new;"]), max_size=8), st.data()
)
def test_a_whole_file_is_taken_as_it_is_whatever_its_blocks_repeat(content: list[str], data: st.DataObject) -> None:
    lines = ["int unmarked_0;", "old_1", "int unmarked_1;", "", "old_2", "int unmarked_2;", ""]
    anchored = Anchored(tuple(lines), ((1, 2), (4, 5)), ("", ""))
    cut = data.draw(st.integers(0, len(content)))
    file = "\n".join([lines[0], *content[:cut], *lines[2:4], *content[cut:], *lines[5:]])
    blocks = anchored.contents_in(file)
    assert blocks is not None
    # Blank lines at a block's edges are dropped, as from every answer.
    assert list(filter(None, anchored.replaced(blocks).split("\n"))) == list(filter(None, file.split("\n")))


def test_a_source_with_few_unmarked_lines_has_too_few_to_tell_a_complete_file_by() -> None:
    whole = Anchored(("int whole;", ""), ((0, 1),), ("",))
    assert not whole.is_mostly_unmarked() and whole.contents_in("int other;\n") == ["int other;"]
    assert Anchored(("int nothing_marked;",), (), ()).contents_in("int nothing_marked;") is None
    # The new content ends as the unmarked rest does, and is not taken for a complete file.
    anchored = "// <<<IMPROVE BEGIN>>>\nacc = 0\n// <<<IMPROVE END>>>\nacc = step(acc)\n"
    assert (
        answered(fenced("acc = 1\nacc = step(acc)"), anchored).source
        == "acc = 1\nacc = step(acc)\nacc = step(acc)\n"
    )


def test_a_file_that_repeats_all_of_a_few_unmarked_lines_is_not_put_into_the_block() -> None:
    anchored = "#include <first>\n// <<<IMPROVE BEGIN>>>\nint slow;\n// <<<IMPROVE END>>>\nint unmarked_line;\n"
    with pytest.raises(AnswerError, match="repeats the file"):
        answered(fenced("// new\n#include <first>\nint fast;\nint unmarked_line;"), anchored)


def test_a_hostile_file_is_compared_in_a_time_that_grows_with_its_length() -> None:
    lines = ["same"] * 50_000
    anchored = Anchored((*lines, "one", *lines, "two", *lines), ((50_000, 50_001), (100_001, 100_002)), ("", ""))
    # Every place matches nearly all of the unmarked lines; compared one by one that takes a minute.
    assert anchored.contents_in("\n".join(["same"] * 149_999)) is None


def test_a_coder_that_sends_too_many_blocks_is_asked_for_one_each() -> None:
    anchored = place(marked(5, 9), SOURCE).text("cpp")
    with pytest.raises(AnswerError, match="Send one for each"):
        answered(fenced("int a;", "int b;"), anchored)


@given(st.integers(0, 98), st.lists(st.text("ab c", max_size=12), max_size=3))
def test_the_anchored_source_is_read_back_as_it_was_written(start: int, advice: list[str]) -> None:
    found = place(marked(start, start + 2, *advice), SOURCE)
    again = read_anchored(found.text("python"))
    assert (again.lines, again.spans) == (found.lines, found.spans)


def test_anchors_and_advice_that_a_coder_repeats_do_not_enter_the_kernel() -> None:
    anchored = place(marked(5, 7, "faster"), SOURCE).text("cpp")
    block = f"{BEGIN}\n// advice: faster\nint changed;\n{END}"
    assert answered(fenced(block), anchored).source == answered(fenced("int changed;"), anchored).source
    edit = f"<<<<<<< SEARCH\n{LINES[5]}\n=======\n{block}\n>>>>>>> REPLACE"
    assert answered(edit, anchored).source == SOURCE.replace(LINES[5], "int changed;")


@pytest.mark.parametrize("advice", ["// advice: faster\n", ""])
def test_complete_kernels_and_edits_of_them_lose_the_anchors_that_they_repeat(advice: str) -> None:
    block = f"  {BEGIN}\n{advice}int changed;\n  /* <<IMPROVE ENDS>> */"
    for text in (fenced(f"int a;\n{block}"), f"<<<<<<< SEARCH\nint b;\n=======\n{block}\n>>>>>>> REPLACE"):
        answer = parse_answer("KernelAnswer", text, basis=Basis("int a;\nint b;\n", "cpp"))
        assert isinstance(answer, KernelAnswer)
        assert answer.source == "int a;\nint changed;\n"


def test_a_kernel_of_nothing_but_anchors_is_no_kernel() -> None:
    with pytest.raises(AnswerError, match="empty"):
        parse_answer("KernelAnswer", fenced(f"{BEGIN}\n{END}"), basis=None)


def test_the_next_plan_marks_its_own_block_of_a_source_that_still_has_old_anchors() -> None:
    old = "\n".join([*LINES[:5], BEGIN, "// advice: older", *LINES[5:7], END, *LINES[7:]]) + "\n"
    anchored = place(marked(20, 21, "newer"), old).text("cpp")
    assert anchored.count("IMPROVE BEGIN") == 1 and "older" not in anchored
    assert answered(fenced("int changed;"), anchored).source == SOURCE.replace(LINES[20], "int changed;")


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("#include <cmath>  // <<<IMPROVE BEGIN>>>", "#include <cmath>"),
        ("x = 1  # <<<IMPROVE END>>>", "x = 1"),
        ("/* <<<IMPROVE BEGIN>>>", "/*"),
        ('say("<<<IMPROVE BEGIN>>>");', 'say("");'),
        ("// ---- <<<improve begins>>> here ----", None),
        ("<<<IMPROVE END>>>", None),
    ],
)
def test_code_beside_an_anchor_stays(line: str, left: str | None) -> None:
    kept = [] if left is None else [left]
    assert without_anchors(f"a\n{line}\nb") == "\n".join(["a", *kept, "b"])


def test_comments_of_a_source_without_anchors_stay_as_they_are() -> None:
    source = "# advice: read the manual\nx = 1  \n"
    assert without_anchors(source) == source
