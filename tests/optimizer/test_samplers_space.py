"""Test spaces: what is valid, and how many configurations are looked at."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.search.space import FLAGS, Config, Constraint, Space, SpaceError
from runners.problems.expressions import ExpressionError
from runners.tunables import Parameter, parse

KERNEL = """
// @tune TILE 16 32 64 default=32
// @tune ORDER row column
// @constraint TILE <= 32 or ORDER == 'row'
// @flags -O3 | -O3 -ffast-math | -O3
"""


def test_the_space_of_a_kernel_is_what_its_comments_say() -> None:
    space = Space.declared(parse(KERNEL))
    assert space.names == ("TILE", "ORDER", FLAGS)
    assert space.defaults() == {"TILE": 32, "ORDER": "row", FLAGS: "-O3"}
    assert len(space.rows) == 5 * 2
    assert not space.valid({"TILE": 64, "ORDER": "column", FLAGS: "-O3"})


def test_the_same_declarations_are_enumerated_once() -> None:
    assert Space.declared(parse(KERNEL)) is Space.declared(parse(KERNEL))


@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
def test_enumeration_finds_exactly_what_the_constraints_allow(bound: int, values: list[int]) -> None:
    lists = {"a": values, "b": [1, 2, 3], "c": [0, 1]}
    space = Space.of(lists, ["a * b <= " + str(bound), "c == 0 or a % 2 == 0"])
    expected = [
        (a, b, c) for a, b, c in itertools.product(*lists.values()) if a * b <= bound and (c == 0 or a % 2 == 0)
    ]
    assert [space.key(config) for config in space.enumerate_valid()] == expected
    assert space.complete


def test_a_constraint_may_be_a_function_of_the_whole_configuration() -> None:
    space = Space.of({"a": [1, 2, 3], "b": [1, 2, 3]}, [lambda config: config["a"] != config["b"]])
    assert len(space.rows) == 6


def test_what_a_constraint_cannot_be_computed_for_is_invalid() -> None:
    space = Space.of({"a": [4, 5], "b": [0, 2]}, ["a % b == 0"])
    assert space.enumerate_valid() == [{"a": 4, "b": 2}]


def test_a_constraint_that_names_nothing_holds_for_all_or_for_none() -> None:
    assert len(Space.of({"a": [1, 2]}, ["1 < 2"]).rows) == 2
    assert len(Space.of({"a": [1, 2]}, ["2 < 1"]).rows) == 0


def test_a_constraint_is_asked_once_for_each_combination_of_its_own_values() -> None:
    asked: list[Config] = []

    def even(config: Config) -> bool:
        asked.append(config)
        return config["a"] != 1

    lists = [Parameter(name, (1, 2, 3, 4), 1) for name in "abcd"]
    space = Space(tuple(lists), (Constraint(("a",), even),))
    assert len(space.rows) == 3 * 4**3
    assert len(asked) == 4


def test_a_space_too_large_to_list_gives_a_bounded_part_of_it_that_stays_the_same() -> None:
    lists = {f"p{number}": list(range(10)) for number in range(12)}
    first, second = (Space.of(lists, ["p0 + p1 <= 9"], most_rows=3000) for _ in range(2))
    assert not first.complete
    assert 3000 <= len(first.rows) <= 3001
    assert first.keep(first.rows).all()
    assert (first.rows == second.rows).all()
    assert first.row(first.defaults()) in set(map(tuple, first.rows.tolist()))


@pytest.mark.parametrize("values", [{}, {"a": []}, {"a": [1, 1]}, {"a": [1, True]}])
def test_a_space_without_names_or_with_doubtful_values_is_refused(values: dict[str, list[int]]) -> None:
    with pytest.raises(SpaceError):
        Space.of(values)


def test_a_constraint_over_an_unknown_name_is_refused() -> None:
    with pytest.raises(SpaceError, match="b"):
        Space.of({"a": [1, 2]}, ["a < b"])


def test_an_expression_that_reaches_for_more_than_arithmetic_keeps_nothing() -> None:
    assert len(Space.of({"a": [1, 2]}, ["a.real == 1"]).rows) == 0
    with pytest.raises(ExpressionError):
        Space.of({"a": [1, 2]}, ["a ="])
