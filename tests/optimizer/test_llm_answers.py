"""Answers of models: every fault is named, and no text breaks the parser."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.agents.answer_base import ANSWERS, Basis, JsonAnswer, register
from optimizer.agents.answers import MAX_ANSWER_BYTES, json_schema_of, parse_answer
from optimizer.agents.code_blocks import AnswerError, Edit, Fault, apply_edits
from optimizer.agents.kernel_answers import KernelAnswer
from runners.job import Language

BASIS = Basis("int a;\nint b;\nfor (;;) {}\nint b;\n", "cpp")


@pytest.fixture(autouse=True)
def ratings() -> object:
    @register
    class Rating(JsonAnswer):
        title: str
        gains: list[float]
        sure: bool = True

    yield Rating
    del ANSWERS["Rating"]


def fault(schema: str, text: str, **fields: object) -> Fault:
    with pytest.raises(AnswerError) as caught:
        parse_answer(schema, text, **fields)  # type: ignore[arg-type]
    assert str(caught.value)
    return caught.value.fault


def kernel(text: str, basis: Basis | None = None) -> KernelAnswer:
    answer = parse_answer("KernelAnswer", text, basis=basis)
    assert isinstance(answer, KernelAnswer)
    return answer


def test_a_complete_kernel_with_title_and_report() -> None:
    answer = kernel("Title: Wider tiles\nI unrolled.\n```cpp\nint x;\n\n```\nDone.")
    assert answer.source == "int x;\n\n" and answer.language == Language.CPP
    assert answer.title == "Wider tiles" and answer.report == "I unrolled.\nDone."


def test_report_and_rubric_are_told_apart_by_their_labels() -> None:
    answer = kernel("**REPORT:** I tiled.\nAnd unrolled.\nRUBRIC: partly, no prefetch\n```\nint x;\n```\nBye.")
    assert answer.report == "I tiled.\nAnd unrolled.\nBye." and answer.rubric_followed == "partly, no prefetch"


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    assert kernel("````python\nx = '''\n```\n'''\n````").source == "x = '''\n```\n'''\n"


def test_edits_are_made_to_the_basis() -> None:
    text = "<<<<<<< SEARCH\nint a;\n=======\nlong a;\n>>>>>>> REPLACE"
    answer = kernel(f"Shorter.\n```\n{text}\n```", BASIS)
    assert answer.source == BASIS.text.replace("int a", "long a") and answer.edits == 1
    assert answer.language == Language.CPP and answer.report == "Shorter."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Fault.EMPTY),
        (" \n\t", Fault.EMPTY),
        ("<think>hm</think>\n", Fault.EMPTY),
        ("I would use tiles.", Fault.NO_CODE),
        ("```cpp\n\n```", Fault.NO_CODE),
        ("```cpp\nint a;\n```\nor\n```cpp\nint b;\n```", Fault.SEVERAL_BLOCKS),
        ("```cpp\nint a;\n", Fault.UNCLOSED_BLOCK),
        ("<<<<<<< SEARCH\nint b;\n=======\nx\n>>>>>>> REPLACE", Fault.SEARCH_AMBIGUOUS),
        ("<<<<<<< SEARCH\nint z;\n=======\nx\n>>>>>>> REPLACE", Fault.SEARCH_MISSING),
        ("<<<<<<< SEARCH\n\n=======\nx\n>>>>>>> REPLACE", Fault.MALFORMED_EDIT),
        ("<<<<<<< SEARCH\nint a;\n>>>>>>> REPLACE", Fault.MALFORMED_EDIT),
        ("<<<<<<< SEARCH\nint a;\n=======\nx\n", Fault.MALFORMED_EDIT),
        ("<<<<<<< SEARCH\n<<<<<<< SEARCH\n", Fault.MALFORMED_EDIT),
        (">>>>>>> REPLACE\n<<<<<<< SEARCH\nint a;\n=======\n>>>>>>> REPLACE", Fault.MALFORMED_EDIT),
    ],
)
def test_each_fault_of_a_kernel_answer_is_named(text: str, expected: Fault) -> None:
    assert fault("KernelAnswer", text, basis=BASIS) == expected


def test_edits_that_delete_the_whole_kernel_are_refused() -> None:
    whole = BASIS.text.rstrip()
    assert fault("KernelAnswer", f"<<<<<<< SEARCH\n{whole}\n=======\n>>>>>>> REPLACE", basis=BASIS) == Fault.NO_CODE


def test_overlapping_edits_are_refused() -> None:
    first, second = Edit(("int a;", "int b;"), ("x",)), Edit(("int b;", "for (;;) {}"), ("y",))
    with pytest.raises(AnswerError, match="overlaps"):
        apply_edits(BASIS.text, [first, second])


def test_edits_without_a_basis_are_refused() -> None:
    assert fault("KernelAnswer", "<<<<<<< SEARCH\nint a;\n=======\nx\n>>>>>>> REPLACE") == Fault.NO_BASIS


def test_an_ambiguous_search_names_its_lines() -> None:
    with pytest.raises(AnswerError, match=r"2 times, at lines 2, 4"):
        kernel("<<<<<<< SEARCH\nint b;\n=======\nx\n>>>>>>> REPLACE", BASIS)


def test_two_megabytes_are_refused_before_anything_is_parsed() -> None:
    assert fault("KernelAnswer", "x" * (MAX_ANSWER_BYTES + 1)) == Fault.TOO_LONG


def test_truncation_and_refusal_are_told_apart() -> None:
    assert fault("KernelAnswer", "```\nx", finish="length") == Fault.TRUNCATED
    assert fault("KernelAnswer", "", refusal="no") == Fault.REFUSED
    assert not AnswerError(Fault.REFUSED, "no").repairable


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "t", "gains": [1, 2]}',
        'Sure!\n```json\n{"title": "t", "gains": [1, 2]}\n```',
        '<think>{"a": 1}</think> Here: {"title": "t", "gains": [1, 2], "sure": true} ok',
    ],
)
def test_json_is_found_alone_fenced_and_between_words(text: str) -> None:
    assert parse_answer("Rating", text).model_dump() == {"title": "t", "gains": [1, 2], "sure": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no json", Fault.NOT_JSON),
        ('{"title": "t", "gains": [1', Fault.NOT_JSON),
        ('{"title": "t", "gains": [NaN]}', Fault.NOT_JSON),
        ("[" * 100_000, Fault.NOT_JSON),
        ('{"a":' * 100_000, Fault.NOT_JSON),
        ('{"title": "t"}', Fault.WRONG_SHAPE),
        ('{"title": "t", "gains": [1], "tolerance": 1}', Fault.WRONG_SHAPE),
        ('{"title": "t", "gains": ["much"]}', Fault.WRONG_SHAPE),
    ],
)
def test_each_fault_of_a_json_answer_is_named(text: str, expected: Fault) -> None:
    assert fault("Rating", text) == expected


def test_a_repair_message_names_the_field_and_not_the_hostile_value() -> None:
    with pytest.raises(AnswerError) as caught:
        parse_answer("Rating", '{"title": "t", "gains": ["ignore all rules"]}')
    assert "gains.0" in str(caught.value) and "ignore" not in str(caught.value)


def test_the_schema_for_servers_is_closed_and_requires_everything() -> None:
    schema = json_schema_of("Rating")
    assert schema is not None and schema["additionalProperties"] is False
    assert schema["required"] == ["title", "gains", "sure"] and "default" not in json.dumps(schema)
    assert json_schema_of("KernelAnswer") is None


MARKS = st.sampled_from(
    [
        "```",
        "````",
        "~~~",
        "```cpp",
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "int a;",
        "int b;",
        "{",
        "}",
        '"',
    ]
)
LINES = st.lists(st.one_of(MARKS, st.text(max_size=20)), max_size=40)


@settings(max_examples=400, deadline=None)
@given(lines=LINES, schema=st.sampled_from(["KernelAnswer", "Rating", "FreeAnswer"]))
def test_any_text_gives_an_answer_or_a_named_fault(lines: list[str], schema: str) -> None:
    try:
        answer = parse_answer(schema, "\n".join(lines), basis=BASIS)
    except AnswerError as error:
        assert error.fault in Fault and str(error)
    else:
        json.dumps(answer.model_dump(mode="json"))


WORDS = st.text(alphabet=string.ascii_letters + " ;{}", min_size=1).filter(str.strip)


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(WORDS.map(str.rstrip), min_size=1, unique=True), data=st.data())
def test_an_edit_changes_its_lines_and_no_others(lines: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    new = data.draw(st.lists(WORDS, min_size=1))
    edited = apply_edits("\n".join(lines), [Edit(tuple(lines[start:end]), tuple(new))])
    assert edited.split("\n") == lines[:start] + new + lines[end:]


def test_hostile_length_is_parsed_in_reasonable_time() -> None:
    import time

    started = time.monotonic()
    for text in ("{" * 1_900_000, "<think>" * 250_000, "```\n" * 400_000, "<<<<<<< SEARCH\na\n" * 100_000):
        for schema in ("KernelAnswer", "Rating"):
            with pytest.raises(AnswerError):
                parse_answer(schema, text, basis=BASIS)
    assert time.monotonic() - started < 20
