"""Test what a report's figures and settings say, without a run."""

from __future__ import annotations

import pytest

from optimizer.reports.svg import Scale
from optimizer.search import settings_in_force


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1.47, [0, 0.5, 1]),
        (0, 6, [0, 2, 4, 6]),
        (0, 40, [0, 10, 20, 30, 40]),
        (-12, 35, [-10, 0, 10, 20, 30]),
        (0, 0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
    ],
)
def test_marks_on_a_reports_axes_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert Scale(low, high, 0, 100).ticks() == pytest.approx(ticks)


def test_an_axis_of_one_value_still_has_a_mark() -> None:
    assert Scale(3, 3, 0, 100).ticks() == [3]


def test_settings_left_open_are_told_with_their_defaults() -> None:
    told = settings_in_force("scientist", {"avenues": 3})
    assert told["avenues"] == 3 and told["experiments"] == 5


@pytest.mark.parametrize("strategy", ["gone", "scientist"])
def test_settings_that_a_strategy_no_longer_takes_are_told_as_they_were(strategy: str) -> None:
    assert settings_in_force(strategy, {"forgotten": 1}) == {"forgotten": 1}
