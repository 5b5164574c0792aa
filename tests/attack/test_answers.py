"""Attack the parsers of answers with texts on which searching takes quadratic time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from optimizer.agents import anchors, answers
from optimizer.agents.answer_base import Basis
from optimizer.tools.text_protocol import parse_calls
from tests.attack.growth import AT_ONCE, MOST_GROWTH, Reader, growth, repeated, seconds

MARKED = "// <<<IMPROVE BEGIN>>>\n{}\n// <<<IMPROVE END>>>\n"


def edit(line: str) -> str:
    return f"<<<<<<< SEARCH\n{line}\n=======\nnew\n>>>>>>> REPLACE\n"


def kernel(text: str) -> object:
    return answers.parse_answer("KernelAnswer", f"{text}\n```cpp\nint a;\n```\n")


def gain(text: str) -> object:
    return answers.parse_answer("PlanAnswer", f"GAIN: {text}\n```cpp\n{MARKED.format('a')}```\n")


def half_marked(text: str) -> object:
    return anchors.place(MARKED.format(text[: len(text) // 2]), text)


def preceded(text: str) -> object:
    return anchors.place(text + MARKED.format("a"), text)


def edits_of_every_line(text: str) -> object:
    return answers.parse_answer("KernelAnswer", "".join(map(edit, text.split())), basis=Basis(text, "cpp"))


def one_long_edit(text: str) -> object:
    return answers.parse_answer("KernelAnswer", edit(text[: len(text) // 2]), basis=Basis(text, "cpp"))


def numbered(characters: int) -> str:
    return "\n".join(f"line{n}" for n in range(characters // 9))


READERS = [
    pytest.param(kernel, repeated("\n", "a", "b"), id="blank lines of an inbox answer"),
    pytest.param(kernel, repeated("#\n"), id="empty headings"),
    pytest.param(kernel, repeated("\n*"), id="empty points"),
    pytest.param(kernel, repeated("a", "```", "`"), id="a fence with a long word"),
    pytest.param(kernel, repeated(" ", "~~~", "`"), id="a fence with blanks"),
    pytest.param(kernel, repeated("~", "~~~", "`"), id="a fence of tildes"),
    pytest.param(gain, repeated("1"), id="digits of a gain"),
    pytest.param(gain, repeated(" ", "1"), id="blanks of a gain"),
    pytest.param(gain, repeated("\n", "1\n"), id="blank lines of a plan"),
    pytest.param(half_marked, repeated("a\n"), id="a block that fits everywhere"),
    pytest.param(preceded, repeated("a\n"), id="lines before a block that fit everywhere"),
    pytest.param(edits_of_every_line, numbered, id="an edit for every line"),
    pytest.param(one_long_edit, repeated("a\n"), id="an edit that fits everywhere"),
    pytest.param(parse_calls, repeated("a: b\n", "TOOL: build\n"), id="arguments of a tool"),
    pytest.param(parse_calls, repeated(" ", "```", "`"), id="a fence among calls"),
]


@pytest.mark.parametrize(("read", "text_of"), READERS)
def test_the_time_of_reading_an_answer_grows_with_its_length_alone(
    read: Reader, text_of: Callable[[int], str]
) -> None:
    assert growth(read, text_of, 4_000) <= MOST_GROWTH


def test_4000_edits_of_50000_lines_are_applied_within_two_seconds() -> None:
    basis = "\n".join(f"line {n}" for n in range(50_000))
    text = "".join(edit(f"line {n}") for n in range(0, 48_000, 12))
    assert seconds(lambda given: answers.parse_answer("KernelAnswer", given, basis=Basis(basis, "cpp")), text) < 2


def test_the_measurement_finds_the_pattern_that_froze_the_server() -> None:
    """Use the earlier pattern of a report's label, whose blanks included line ends, as the control."""
    label = re.compile(r"^[#*\s]*(TITLE|REPORT|RUBRIC)[*\s]*:[* \t]*", re.IGNORECASE | re.MULTILINE)
    assert growth(label.split, repeated("\n", "a", "b"), 500, AT_ONCE) > 1.5
