"""Test how calls are made in a loop on a GPU, on a device that only counts."""

from __future__ import annotations

from typing import Any

from runners.candidate.device_clock import DeviceClock


class CountingEvent:
    """Represent a mark that is reached at once, 1,000 ns after the one before."""

    def record(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""

    def nanoseconds_since(self, earlier: Any) -> int:
        """Return what a device would have measured."""
        return 1000


class CountingDriver:
    """Represent a driver on a device that is always idle."""

    def allocate(self, size_bytes: int) -> int:
        return 0

    def event(self) -> CountingEvent:
        return CountingEvent()

    def synchronize(self) -> None:
        return None


def steady(calls: int, warm_ns: int, repeats: int = 0) -> tuple[list[str], list[int], list[Any]]:
    """Return the calls that were made, the times, and what they returned."""
    made: list[str] = []

    def call(name: str) -> str:
        made.append(name)
        return name.upper()

    names = [(chr(ord("a") + number),) for number in range(calls)]
    times, results = DeviceClock(CountingDriver(), 0).steady(call, names, warm_ns, repeats)
    return made, times, results


def test_a_loop_times_all_calls_but_the_first_on_the_device() -> None:
    made, times, results = steady(3, 0)
    assert made == ["a", "b", "c"]
    assert results == ["A", "B", "C"]
    assert times[1] >= 1000


def test_a_warm_loop_starts_behind_a_call_that_is_under_way() -> None:
    made, _, results = steady(3, 1)
    assert made == ["a", "a", "b", "c"]
    assert results == ["A", "B", "C"]


def test_a_call_that_is_alone_is_repeated_in_a_loop() -> None:
    made, times, results = steady(1, 1, repeats=5)
    assert made == ["a"] * 7
    assert results == ["A"]
    assert times[1] >= 1000


def test_a_call_that_is_alone_and_may_not_be_repeated_is_made_once() -> None:
    made, times, results = steady(1, 0)
    assert made == ["a"]
    assert results == ["A"]
    assert times[0] > 0 and times[1] == 0
