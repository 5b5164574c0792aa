"""Test numbers in addresses and forms."""

from __future__ import annotations

import pytest

from optimizer.text.whole_numbers import COUNT_DIGITS, KEY_DIGITS, parse_whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * KEY_DIGITS, 10**KEY_DIGITS - 1)])
def test_ascii_digits_are_a_number(text: str, number: int) -> None:
    assert parse_whole_number(text) == number


@pytest.mark.parametrize(
    "text", [None, "", "-1", "+1", " 1", "1.0", "1_0", "²", "٣", "0x1", "9" * (KEY_DIGITS + 1)]
)
def test_anything_else_is_none_and_so_is_what_no_column_holds(text: str | None) -> None:
    assert parse_whole_number(text) is None


def test_a_smaller_column_takes_fewer_digits() -> None:
    assert parse_whole_number("9" * COUNT_DIGITS, COUNT_DIGITS) == 999_999_999 < 2**31
    assert parse_whole_number("1" * (COUNT_DIGITS + 1), COUNT_DIGITS) is None
