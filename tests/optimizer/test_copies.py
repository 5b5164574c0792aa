"""Answers may name lines of the source instead of repeating them."""

from __future__ import annotations

import pytest

from optimizer.agents.anchors import place
from optimizer.agents.answer_base import Basis
from optimizer.agents.code_blocks import AnswerError, Fault
from optimizer.agents.copies import text_with_copies
from optimizer.agents.kernel_answers import BlockAnswer, KernelAnswer
from optimizer.tools.catalogue import BlockArguments, KernelArguments
from optimizer.tools.sources import Draft, draft_of
from runners.job import Language

SOURCE = """\
int total(const int* x, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        sum += x[i];
    }
    return sum;
}
int twice(int x) {
    return 2 * x;
}
"""
LOOP = "    <<<COPY FROM>>> for (int i = 0; i < n; ++i) {\n    <<<COPY TO>>> return sum;"


def test_marks_stand_for_the_lines_from_the_first_to_the_next_with_the_text_of_the_last() -> None:
    written = text_with_copies("int f() {\n    <<<COPY FROM>>> int sum = 0;\n<<<COPY TO>>>    }\n}", SOURCE)
    assert written == "\n".join(["int f() {", *SOURCE.split("\n")[1:5], "}"])


@pytest.mark.parametrize("mark", ["// ", "# ", "", "//"])
def test_copied_lines_are_indented_as_the_first_mark_is(mark: str) -> None:
    text = f"        {mark}<<<COPY FROM>>> for (int i = 0; i < n; ++i) {{\n{mark}<<<COPY TO>>> return sum;"
    assert text_with_copies(text, SOURCE).split("\n") == [
        "        for (int i = 0; i < n; ++i) {",
        "            sum += x[i];",
        "        }",
        "        return sum;",
    ]
    inner = f"            {mark}<<<COPY FROM>>> sum += x[i];\n{mark}<<<COPY TO>>> return sum;"
    moved = ["            sum += x[i];", "        }", "        return sum;"]
    assert text_with_copies(inner, SOURCE).split("\n") == moved
    outer = f"{mark}<<<COPY FROM>>> sum += x[i];\n{mark}<<<COPY TO>>> return sum;"
    assert text_with_copies(outer, SOURCE).split("\n") == ["sum += x[i];", "}", "return sum;"]


def test_lines_of_python_keep_their_places_in_blocks_when_they_are_moved() -> None:
    source = "def f(r):\n    for i in r:\n        if i > 2:\n            a = 0\n        acc += a\n    return acc"
    text = "while x:\n            <<<COPY FROM>>> a = 0\n            <<<COPY TO>>> return acc"
    assert text_with_copies(text, source) == "while x:\n            a = 0\n        acc += a\n    return acc"
    deeper = text.replace("            <<<", "                <<<")
    assert text_with_copies(deeper, source) == (
        "while x:\n                a = 0\n            acc += a\n        return acc"
    )


def test_directives_of_the_preprocessor_and_blank_lines_stay_in_their_column() -> None:
    source = "int a;\n#if X\n\n    int b;\n#endif\nint c;"
    copied = text_with_copies("  <<<COPY FROM>>> int a;\n  <<<COPY TO>>> int c;", source)
    assert copied == "  int a;\n#if X\n\n      int b;\n#endif\n  int c;"


def test_one_line_a_blank_line_and_a_whole_source_can_be_copied() -> None:
    assert text_with_copies("<<COPY FROM>> return 2 * x;\n<<COPY TO>> return 2 * x;", SOURCE) == "return 2 * x;"
    spaced = "first\n\n    inner\nlast"
    whole = text_with_copies("  <<<COPY FROM>>> first\n  <<<COPY TO>>> last", spaced)
    assert whole == "  first\n\n      inner\n  last"


@pytest.mark.parametrize(
    ("text", "fault", "said"),
    [
        ("<<<COPY FROM>>> absent\n<<<COPY TO>>> return sum;", Fault.MALFORMED_EDIT, "no line “absent”"),
        ("<<<COPY FROM>>> }\n<<<COPY TO>>> }", Fault.SEARCH_AMBIGUOUS, "occurs 3 times, at lines 5, 7, 10"),
        ("<<<COPY FROM>>> return sum;\n<<<COPY TO>>> int sum = 0;", Fault.MALFORMED_EDIT, "at or below"),
        ("<<<COPY FROM>>> return sum;\nint x;\n<<<COPY TO>>> }", Fault.MALFORMED_EDIT, "directly"),
        ("<<<COPY FROM>>> return sum;\n<<<COPY FROM>>> return sum;", Fault.MALFORMED_EDIT, "directly"),
        ("<<<COPY TO>>> return sum;", Fault.MALFORMED_EDIT, "directly"),
        ("<<<COPY FROM>>> return sum;", Fault.MALFORMED_EDIT, "no line"),
        ("<<<COPY FROM>>>\n<<<COPY TO>>> return sum;", Fault.MALFORMED_EDIT, "no line “”"),
        ("<<<COPY FROM>>> return sum;\n<<<COPY TO>>>", Fault.MALFORMED_EDIT, "at or below"),
        ("x = 1  # <<<COPY FROM>>> return sum;\n<<<COPY TO>>> }", Fault.MALFORMED_EDIT, "first in their lines"),
    ],
)
def test_marks_that_name_nothing_or_several_places_are_refused_with_what_to_do(
    text: str, fault: Fault, said: str
) -> None:
    with pytest.raises(AnswerError, match="COPY") as refused:
        text_with_copies(text, SOURCE)
    assert refused.value.fault is fault
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "<<copy from>> sum += x[i];\n<<copy to>> sum += x[i];",
        "<<<< COPY FROM >>>> sum += x[i];\n<<<< COPY TO >>>> sum += x[i];",
        "/* <<<COPY FROM>>> sum += x[i]; */\n/* <<<COPY TO>>> sum += x[i]; */",
        "## <<<COPY FROM>>> sum  +=  x[i];\n## <<<COPY TO>>> sum += x[i];",
    ],
)
def test_marks_are_read_in_other_forms_too(text: str) -> None:
    assert text_with_copies(text, SOURCE) == "sum += x[i];"


def test_launches_and_other_angle_brackets_are_no_marks() -> None:
    text = "copy<<<grid, block>>>(from, to);\nstd::copy(a, b, c);\n// COPY FROM here"
    assert text_with_copies(text, SOURCE) == text


def test_copies_that_are_together_longer_than_a_kernel_may_be_are_refused_before_they_are_made() -> None:
    source = "start\n" + "line\n" * 50_000 + "end"
    with pytest.raises(AnswerError) as refused:
        text_with_copies("<<<COPY FROM>>> start\n<<<COPY TO>>> end\n" * 20_000, source)
    assert refused.value.fault is Fault.TOO_LONG
    indented = " " * 1_000 + "<<<COPY FROM>>> start\n<<<COPY TO>>> end"
    with pytest.raises(AnswerError):
        text_with_copies(indented, source)


def test_a_coder_copies_from_outside_its_marked_block() -> None:
    marked = "// <<<IMPROVE BEGIN>>>\n// advice: sum in a loop\n    return 2 * x;\n// <<<IMPROVE END>>>"
    plan = "int twice(int x) {\n" + marked
    basis = Basis(place(plan, SOURCE).text("cpp"), "cpp")
    expected = SOURCE.replace("    return 2 * x;", "\n".join(["    int sum = x;", *SOURCE.split("\n")[2:6]]))
    block = f"REPORT: done\n```cpp\n    int sum = x;\n{LOOP}\n```"
    edit = f"<<<<<<< SEARCH\n    return 2 * x;\n=======\n    int sum = x;\n{LOOP}\n>>>>>>> REPLACE"
    for answer in (block, edit):
        assert BlockAnswer.read(answer, basis).source == expected


def test_edits_of_writers_and_of_their_tools_copy_from_the_kernel_that_they_change() -> None:
    edit = f"<<<<<<< SEARCH\n    return 2 * x;\n=======\n{LOOP}\n>>>>>>> REPLACE"
    expected = SOURCE.replace("    return 2 * x;", "\n".join(SOURCE.split("\n")[2:6]))
    basis = Basis(SOURCE, "cpp")
    assert KernelAnswer.read(edit, basis).source == expected
    assert draft_of(KernelArguments(edits=edit), None, basis, Language.CPP).text == expected


def test_complete_files_copy_from_the_kernel_that_their_writer_knows() -> None:
    file = f"int total() {{\n{LOOP}\n}}\n"
    expected = "\n".join(["int total() {", *SOURCE.split("\n")[2:6], "}", ""])
    basis, last = Basis("int other;", "cpp"), Draft(SOURCE, Language.CPP)
    assert KernelAnswer.read(f"```cpp\n{file}```", Basis(SOURCE, "cpp")).source == expected
    assert draft_of(KernelArguments(source=file), last, basis, Language.CPP).text == expected
    with pytest.raises(AnswerError, match="no kernel to copy from"):
        KernelAnswer.read(f"```cpp\n{file}```", None)


def test_a_complete_file_of_a_coder_may_name_the_lines_around_its_block() -> None:
    plan = "int twice(int x) {\n// <<<IMPROVE BEGIN>>>\n// advice: add\n    return 2 * x;\n// <<<IMPROVE END>>>"
    basis = Basis(place(plan, SOURCE).text("cpp"), "cpp")
    head = "<<<COPY FROM>>> int total(const int* x, int n) {\n<<<COPY TO>>> int twice(int x) {"
    answer = f"REPORT: done\n```cpp\n{head}\n    return x + x;\n}}\n```"
    assert BlockAnswer.read(answer, basis).source == SOURCE.replace("2 * x", "x + x")


def test_a_kernel_does_not_grow_beyond_its_limit_in_call_after_call() -> None:
    draft = Draft("\n".join(["h0", "x" * 400_000, "last"]), Language.CPP)
    edit = "<<<<<<< SEARCH\nh0\n=======\nh1\n<<<COPY FROM>>> h0\n<<<COPY TO>>> last\n>>>>>>> REPLACE"
    with pytest.raises(AnswerError) as refused:
        draft_of(KernelArguments(edits=edit), draft, None, Language.CPP)
    assert refused.value.fault is Fault.TOO_LONG


def test_an_edit_whose_copy_names_nothing_is_not_applied_to_another_kernel() -> None:
    plan = "int twice(int x) {\n// <<<IMPROVE BEGIN>>>\n// advice: add\n    return 2 * x;\n// <<<IMPROVE END>>>"
    basis = Basis(place(plan, SOURCE).text("cpp"), "cpp")
    last = Draft(SOURCE.replace("int sum = 0;", "int sum = 1;"), Language.CPP)
    copy = "<<<COPY FROM>>> int sum = 0;\n<<<COPY TO>>> int sum = 0;"
    edit = f"<<<<<<< SEARCH\n    return 2 * x;\n=======\n{copy}\n>>>>>>> REPLACE"
    with pytest.raises(AnswerError, match="COPY FROM"):
        draft_of(BlockArguments(edits=edit), last, basis, Language.CPP)
