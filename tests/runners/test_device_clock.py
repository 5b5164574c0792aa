"""Test how calls are made in a loop on a GPU, on a device that only counts."""

from __future__ import annotations

from typing import Any

from runners.candidate.device_clock import DeviceClock


class CountingDriver:
    """Represent a driver on a device that is always idle."""

    def allocate(self, size_bytes: int) -> int:
        return 0

    def event(self) -> Any:
        return None

    def synchronize(self) -> None:
        return None


def steady(calls: int, warm_ns: int) -> tuple[list[str], list[int], list[Any]]:
    """Return the calls that were made, the times, and what they returned."""
    made: list[str] = []

    def call(name: str) -> str:
        made.append(name)
        return name.upper()

    names = [(chr(ord("a") + number),) for number in range(calls)]
    times, results = DeviceClock(CountingDriver(), 0).steady(call, names, warm_ns)
    return made, times, results


def test_a_loop_times_all_calls_but_the_first() -> None:
    made, times, results = steady(3, 0)
    assert made == ["a", "b", "c"]
    assert results == ["A", "B", "C"]
    assert all(time > 0 for time in times)


def test_a_call_that_is_alone_is_made_again_after_one_that_warms_up() -> None:
    made, times, results = steady(1, 1)
    assert made == ["a", "a"]
    assert results == ["A"]
    assert times[1] > 0


def test_a_call_that_is_alone_and_may_not_be_repeated_is_made_once() -> None:
    made, times, results = steady(1, 0)
    assert made == ["a"]
    assert results == ["A"]
    assert times[1] == 0
