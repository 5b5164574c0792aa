"""Test what people and models are told of data that does not fit."""

from __future__ import annotations

from typing import Self

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from optimizer.text.complaints import complaints_of


class Range(BaseModel):
    """Hold two numbers in order."""

    model_config = ConfigDict(extra="forbid")
    low: int
    high: int

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Ranges(BaseModel):
    """Hold several ranges."""

    ranges: list[Range]


def told(data: object, whole: str = "file") -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Ranges.model_validate(data)
    return [complaint.told_of(whole) for complaint in complaints_of(refused.value)]


def test_a_complaint_names_the_field_and_never_the_value() -> None:
    secret = "sk-" + "x" * 40
    (said,) = told({"ranges": [{"low": secret, "high": 3}]})
    assert said.startswith("ranges.0.low: ") and secret not in said
    assert told({"ranges": [{"low": 1, "high": 3, "hihg": 4}]})[0].startswith("ranges.0.hihg: ")


def test_a_long_name_of_an_unknown_field_is_cut() -> None:
    (said,) = told({"ranges": [{"low": 1, "high": 3, "x" * 5_000_000: 4}]})
    assert said.startswith("ranges.0.xxx") and len(said) < 300


def test_a_complaint_of_our_own_stands_as_it_was_written() -> None:
    assert told({"ranges": [{"low": 3, "high": 1}]}) == ["ranges.0: low must not be above high"]


def test_what_is_wrong_as_a_whole_is_said_of_the_whole() -> None:
    (said,) = told(5)
    assert said.startswith("file: ") and told(5, "")[0] == said.removeprefix("file: ")
