"""Differ, intraline marks, moves and porting on arbitrary text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optimizer.diffs.differ import Tag, apply, diff
from optimizer.diffs.intraline import mark, pair_lines
from optimizer.diffs.moves import moved_lines
from optimizer.diffs.porting import WHOLE_FILE, Fit, Position, port

few_lines = st.lists(st.sampled_from(["a", "b", "c", "", "}", "\tx\r", "🙂", "\u202egnp"]), max_size=40)
texts = st.text(alphabet=st.sampled_from("ab \n\t\r🙂\u202e{}x1"), max_size=120)


@given(few_lines, few_lines)
def test_applying_a_diff_gives_the_new_side(a: list[str], b: list[str]) -> None:
    assert apply(diff(a, b), a, b) == b


@given(few_lines, few_lines, st.integers(0, 3))
def test_opcodes_cover_both_sides_without_gaps_and_equal_means_equal_even_when_myers_gives_up(
    a: list[str], b: list[str], most_edits: int
) -> None:
    opcodes = diff(a, b, most_edits)
    assert [c.a0 for c in opcodes] == [0, *(c.a1 for c in opcodes)][: len(opcodes)]
    assert [c.b0 for c in opcodes] == [0, *(c.b1 for c in opcodes)][: len(opcodes)]
    assert (opcodes[-1].a1, opcodes[-1].b1) == (len(a), len(b)) if opcodes else not a and not b
    assert all(a[c.a0 : c.a1] == b[c.b0 : c.b1] for c in opcodes if c.tag is Tag.EQUAL)


@given(few_lines, few_lines)
def test_without_anchors_the_script_is_a_shortest_one(a: list[str], b: list[str]) -> None:
    doubled_a, doubled_b = [x for x in a for _ in "12"], [x for x in b for _ in "12"]
    same = sum(c.a1 - c.a0 for c in diff(doubled_a, doubled_b) if c.tag is Tag.EQUAL)
    assert same == longest_common(doubled_a, doubled_b)


def longest_common(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def test_a_pathological_pair_ends_soon_and_is_still_a_correct_diff() -> None:
    a = [str(n % 7) for n in range(6000)]
    b = [str(n * n % 11) for n in range(6000)]
    start = time.perf_counter()
    opcodes = diff(a, b)
    assert time.perf_counter() - start < 5
    assert apply(opcodes, a, b) == b


@given(texts, texts)
@example("x = 1;", "x = 2;")
def test_intraline_marks_leave_equal_text_when_taken_out(old: str, new: str) -> None:
    marks = mark(old, new)
    if marks.old or marks.new:
        assert without(old, marks.old) == without(new, marks.new)


def without(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text


def test_a_changed_number_is_the_only_mark_of_its_line() -> None:
    marks = mark("for (int i = 0; i < 16; ++i) {", "for (int i = 0; i < 32; ++i) {")
    assert marks.old == ((20, 22),) and marks.new == ((20, 22),)


@given(st.lists(texts, max_size=12), st.lists(texts, max_size=12))
def test_every_line_of_a_replaced_block_is_shown_once_and_in_order(old: list[str], new: list[str]) -> None:
    rows = pair_lines(old, new)
    assert [i for i, _ in rows if i is not None] == list(range(len(old)))
    assert [j for _, j in rows if j is not None] == list(range(len(new)))


@pytest.mark.parametrize("change", [lambda line: f"    {line}", lambda line: f"{line}\r"], ids=["indented", "CRLF"])
def test_lines_that_stay_where_they_are_have_not_moved(change: Callable[[str], str]) -> None:
    block = ["first = load(pointer, offset)", "second = first * scale + bias", "store(pointer, second, mask)"]
    a = ["def kernel():", *block, "done()"]
    b = ["def kernel():", "with no_grad():", *map(change, block), "done()"]
    assert moved_lines(diff(a, b), a, b) == ({}, {})


def test_a_block_moved_with_another_indentation_is_recognised_on_both_sides() -> None:
    block = ["float sum_of_rows = 0.0f;", "for (int i = 0; i < n; ++i)", "sum_of_rows += x[i];"]
    other = [f"other statement number {n};" for n in range(6)]
    a, b = [*block, *other], [*other, *(f"    {line}" for line in block)]
    there, back = moved_lines(diff(a, b), a, b)
    assert there == {0: 6, 1: 7, 2: 8} and back == {6: 0, 7: 1, 8: 2}


def test_braces_alone_are_not_a_move() -> None:
    a, b = ["}", "}", "}", "x"], ["x", "}", "}", "}"]
    assert moved_lines(diff(a, b), a, b) == ({}, {})


@given(few_lines.filter(bool), st.data())
def test_porting_through_identity_is_identity(lines: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(lines)))
    count = data.draw(st.integers(1, len(lines) - first + 1))
    position = Position(first, count)
    assert port(position, diff(lines, lines)) == position


@given(few_lines, few_lines, st.integers(0, 40), st.integers(0, 40))
def test_a_line_that_survives_is_found(a: list[str], b: list[str], where: int, other: int) -> None:
    unique = "the one line that survives"
    old, new = list(a), list(b)
    old.insert(where % (len(a) + 1), unique)
    new.insert(other % (len(b) + 1), unique)
    ported = port(Position(old.index(unique) + 1, 1), diff(old, new))
    common = diff(old, new)
    kept = any(c.tag is Tag.EQUAL and c.a0 <= old.index(unique) < c.a1 for c in common)
    if kept:
        assert ported == Position(new.index(unique) + 1, 1)


@given(few_lines.filter(bool), st.lists(few_lines, max_size=4), st.data())
def test_nothing_vanishes_a_ported_position_is_in_the_file_or_the_whole_file(
    lines: list[str], generations: list[list[str]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(lines)))
    count = data.draw(st.integers(1, len(lines) - first + 1))
    ported, last = Position(first, count), lines
    for generation in generations:
        ported, last = port(ported, diff(last, generation)), generation
    if ported.fit is Fit.WHOLE_FILE:
        assert ported == WHOLE_FILE
    else:
        assert ported.first >= 1 and ported.count >= 1 and ported.first + ported.count - 1 <= len(last)


def test_lines_that_were_deleted_make_a_whole_file_comment() -> None:
    a, b = ["keep", "gone", "keep2"], ["keep", "keep2"]
    assert port(Position(2, 1), diff(a, b)) == WHOLE_FILE
