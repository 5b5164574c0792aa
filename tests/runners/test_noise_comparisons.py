"""Test which processes of the noise floor's comparisons start together, with processes that only say who they are."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from runners.backends.base import Artefact
from runners.errors import BASELINE
from runners.harness.timing.noise import TOGETHER, comparisons_with_itself
from runners.harness.timing.plan import FULL
from runners.harness.timing.sessions import Bench
from runners.harness.timing.statistics import Interval
from runners.job import Limits

GIB = 1 << 30
# Each comparison starts so many processes.
PROCESSES = 2 * FULL.sessions


class Oracle:
    """Stand for the oracle of a device."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu


class Side:
    """Stand for a process. It knows how many were started before it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arena: Any = type("Arena", (), {"size_bytes": 0})()


class Comparisons(Bench):
    """Note how many processes start at a time, which ones are measured together, and which ones end."""

    batches: list[int] = []
    measured: list[list[int]] = []
    ended: list[int] = []

    def arena_bytes(self, plan: Any) -> int:
        return 0

    def _started(self, sessions: int, sides: Any, size: int) -> Any:
        first = sum(self.batches)
        self.batches.append(sessions * len(sides))
        count = iter(range(first, first + sessions * len(sides)))
        return [[Side(next(count)) for _ in sides] for _ in range(sessions)]

    def measure(self, plan: Any, sides: Any, *_: Any) -> Any:
        if not self._waiting:
            self.start_ahead(plan, sides)
        self.measured.append([side.number for session in self._waiting for side in session])  # type: ignore[attr-defined]
        return Shown(1.0 + len(self.measured))

    def close(self) -> None:
        self.ended.extend(side.number for session in self._waiting for side in session)  # type: ignore[attr-defined]


class Shown:
    """Stand for timings with one speedup."""

    def __init__(self, value: float) -> None:
        self._value = value

    def speedup(self, opponent: str, rng: random.Random) -> Interval:
        assert opponent == BASELINE
        return Interval(self._value, self._value, self._value)


def compared(count: int, device_bytes: int, *, on_gpu: bool = True) -> list[float]:
    """Make comparisons, and return what they showed."""
    Comparisons.batches, Comparisons.measured, Comparisons.ended = [], [], []
    anything: Any = None
    oracle: Any = Oracle(on_gpu=on_gpu)
    bench = Comparisons(
        anything, anything, oracle, [], anything, Limits(), random.Random(1), None, device_bytes=device_bytes
    )
    artefact: Any = type("Made", (Artefact,), {"__init__": lambda self: None, "scratch": "", "kind": "module"})()
    with closing(comparisons_with_itself(bench, artefact, anything)) as intervals:
        return [interval.median for interval in islice(intervals, count)]


def test_comparisons_on_a_gpu_start_their_processes_together_and_share_none() -> None:
    assert compared(2 * TOGETHER, 80 * GIB) == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert Comparisons.batches == [TOGETHER * PROCESSES] * 2
    everyone = [number for numbers in Comparisons.measured for number in numbers]
    assert [len(numbers) for numbers in Comparisons.measured] == [PROCESSES] * 2 * TOGETHER
    assert sorted(everyone) == list(range(2 * TOGETHER * PROCESSES))


def test_processes_of_comparisons_that_nobody_wants_end() -> None:
    compared(1, 80 * GIB)
    assert len(Comparisons.measured) == 1
    assert sorted(Comparisons.ended) == list(range(TOGETHER * PROCESSES))


@pytest.mark.parametrize(("device_bytes", "on_gpu"), [(24 * GIB, True), (0, False)])
def test_a_small_gpu_and_a_cpu_start_one_comparison_at_a_time(device_bytes: int, on_gpu: bool) -> None:
    compared(3, device_bytes, on_gpu=on_gpu)
    assert Comparisons.batches == [PROCESSES] * 3
