"""Test what the ticks of logarithmic axes say."""

from __future__ import annotations

import pytest

from optimizer.charts.axis import logarithmic


@pytest.mark.parametrize(
    ("values", "prefixed", "words"),
    [
        ([0.2, 2.0], False, ["0.2", "0.5", "1", "2"]),
        ([90.0, 9000.0], False, ["100", "200", "500", "1,000", "2,000", "5,000", "10,000"]),
        ([9e9, 4e11], True, ["10G", "20G", "50G", "100G", "200G", "500G"]),
        ([1.0, 1e5], False, ["1", "10", "100", "1,000", "10,000", "100,000"]),
    ],
)
def test_every_tick_reads_as_its_own_number(values: list[float], prefixed: bool, words: list[str]) -> None:
    axis = logarithmic("µs", values, prefixed)
    assert axis["ticktext"] == words
    assert len(axis["tickvals"]) == len(words)


def test_all_values_lie_within_the_axis() -> None:
    low, high = logarithmic("µs", [3.0, 700.0])["range"]
    assert 10**low < 3 and 10**high > 700


def test_values_without_a_logarithm_are_passed_over() -> None:
    assert "tickvals" not in logarithmic("µs", [0.0, -1.0, float("inf")])
    assert logarithmic("µs", [0.0, 10.0])["ticktext"] == ["10"]
