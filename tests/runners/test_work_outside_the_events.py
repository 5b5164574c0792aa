"""Test when a device that stays busy after a call's last event makes its time suspect."""

from __future__ import annotations

import random

import pytest

from runners.errors import BASELINE, CANDIDATE, PARENT
from runners.harness.timing.measurements import CaseSession, SideTimes
from runners.harness.timing.sessions import Timings
from runners.harness.verdict.plausibility import failed_checks
from runners.job import Speedup, Verdict
from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from runners.targets import target
from tests.runners.test_small_differences import series

CPU = target("cpu")
PROBLEM = open_bundle(load("softmax_rows"))
CASE = PROBLEM.cases("cpu", Purpose.BENCHMARK)[0]


def complaints(candidate_us: float, busy_us: float, **others_us: float) -> list[str]:
    """Return what speaks against a candidate that keeps the device busy for so long after its events."""
    times = {CANDIDATE: candidate_us, **others_us}
    sides = {
        name: SideTimes(series(us), busy_us=[busy_us if name == CANDIDATE else 1.0] * 8)
        for name, us in times.items()
    }
    timings = Timings({CASE.name: [CaseSession(CASE, dict(sides)) for _ in range(3)]})
    ratio = others_us[BASELINE] / candidate_us
    claimed = Speedup(ratio, ratio * 0.99, ratio * 1.01, "torch_eager", 1.01, Verdict.FASTER)
    return failed_checks(PROBLEM, [CASE], CPU, timings, claimed, random.Random(1))


def test_a_candidate_that_is_ahead_may_not_work_outside_its_events() -> None:
    (found,) = complaints(500.0, 400.0, **{BASELINE: 1000.0})
    assert "busy 399 µs longer than its events say" in found


@pytest.mark.parametrize(("parent_us", "accused"), [(3000.0, True), (900.0, False)])
def test_one_that_is_slower_than_the_baseline_is_accused_only_if_it_is_ahead_of_its_parent(
    parent_us: float, accused: bool
) -> None:
    found = complaints(2000.0, 400.0, **{BASELINE: 1000.0, PARENT: parent_us})
    assert bool(found) is accused


def test_a_few_microseconds_are_nobodys_fault() -> None:
    assert complaints(500.0, 20.0, **{BASELINE: 1000.0}) == []
