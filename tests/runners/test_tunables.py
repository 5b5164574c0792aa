"""Test tunables in comments: one syntax for all languages, hostile text included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.problems.expressions import ExpressionError
from runners.tunables import DeclaredSpace, TunablesError, holds, parse

TEXT = """
// @tune TILE_M 16 32 64 default=32
//   @tune TILE_N 16 32
# @tune LAYOUT row column
# @tune FAST true false default=false
// @constraint TILE_M * TILE_N <= 1024
// @constraint LAYOUT == 'row' or not FAST
// @flags -O3 -march=native | -O3 -ffast-math
int main() { return 0; } // @tune is not read after code
"""


def test_values_defaults_constraints_and_flags_are_read() -> None:
    space = parse(TEXT)
    assert space.defaults() == {"TILE_M": 32, "TILE_N": 16, "LAYOUT": "row", "FAST": False}
    assert space.constraints == ("TILE_M * TILE_N <= 1024", "LAYOUT == 'row' or not FAST")
    assert space.flag_sets == (("-O3", "-march=native"), ("-O3", "-ffast-math"))
    assert space.size == 3 * 2 * 2 * 2 * 2


def test_every_enumerated_combination_keeps_the_constraints() -> None:
    space = parse(TEXT)
    combinations = list(space.enumerate_valid())
    assert len(combinations) == 15
    for combination in combinations:
        m, n = combination["TILE_M"], combination["TILE_N"]
        assert isinstance(m, int) and isinstance(n, int) and m * n <= 1024
    assert {"TILE_M": 64, "TILE_N": 32, "LAYOUT": "row", "FAST": True} not in combinations


def test_text_without_declarations_has_an_empty_space() -> None:
    assert parse("int x;\n") == DeclaredSpace()
    assert list(DeclaredSpace().enumerate_valid()) == [{}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("// @tune", "is not a name"),
        ("// @tune 3D 1 2", "is not a name"),
        ("// @tune T", "needs 1 to"),
        ("// @tune T 1 1", "different"),
        ("// @tune T 1 2 default=3", "default"),
        ("// @tune T 1;2", "is not a value"),
        ("// @constraint T <= 3", "not a known size"),
        ("// @constraint __import__('os')", "not allowed"),
        ("// @constraint (", "not an expression"),
        ("// @constraint 2 < 1", "defaults violate"),
    ],
)
def test_faulty_declaration_is_named_with_its_line(line: str, said: str) -> None:
    with pytest.raises(TunablesError) as caught:
        parse(f"int x;\n{line}\n")
    assert "line 2" in str(caught.value) and said in str(caught.value)


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(TunablesError) as caught:
        parse("// @tune A\n// @tune B 1\n// @tune B 2\n")
    assert [c.split(":")[0] for c in caught.value.complaints] == ["line 1", "line 3"]


def test_choice_is_checked_against_the_declared_values_and_constraints() -> None:
    space = parse(TEXT)
    assert space.complaints({"TILE_M": 16}) == []
    assert "not a tunable" in space.complaints({"X": 1})[0]
    assert "not one of" in space.complaints({"TILE_M": 17})[0]
    assert "violates" in space.complaints({"TILE_M": 64, "TILE_N": 32})[0]


@given(st.text(max_size=60))
def test_no_constraint_text_does_more_than_answer_or_be_refused(text: str) -> None:
    try:
        assert holds(text, {"A": 3, "B": "word"}) in (True, False)
    except ExpressionError:
        pass
    except Exception as error:  # pragma: no cover - the point of the test
        pytest.fail(f"{text!r} raised {type(error).__name__}")


@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused_by_line(text: str) -> None:
    try:
        parse("// @tune " + text)
    except TunablesError as error:
        assert error.complaints
