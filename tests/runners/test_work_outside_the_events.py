"""Test when a device that stays busy after a call's last event makes its time suspect."""

from __future__ import annotations

import dataclasses
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


OTHER = dataclasses.replace(CASE, name="other")


def complaints(busy_us: float, *cases: dict[str, float]) -> list[str]:
    """Return what speaks against a candidate that keeps the device busy for so long after its events in the first case.

    Each case gives the times of all sides in µs.
    """
    timings, rng = Timings(), random.Random(1)
    for number, (case, times) in enumerate(zip((CASE, OTHER), cases, strict=False)):
        busy = {CANDIDATE: 1.0 if number else busy_us}
        sides = {name: SideTimes(series(us), busy_us=[busy.get(name, 1.0)] * 8) for name, us in times.items()}
        timings.sessions[case.name] = [CaseSession(case, dict(sides)) for _ in range(3)]
    found = timings.speedup(BASELINE, rng)
    claimed = Speedup(found.median, found.low, found.high, "torch_eager", 1.01, Verdict.SAME)
    return failed_checks(PROBLEM, [CASE, OTHER][: len(cases)], CPU, timings, claimed, rng)


def test_a_candidate_may_not_work_outside_its_events() -> None:
    (found,) = complaints(400.0, {CANDIDATE: 500.0, BASELINE: 1000.0})
    assert "busy 399 µs longer than its events say" in found


def test_nor_may_one_that_claims_to_be_a_little_slower() -> None:
    assert complaints(400.0, {CANDIDATE: 1010.0, BASELINE: 1000.0})


def test_a_case_that_is_behind_counts_where_all_cases_together_are_not() -> None:
    behind, ahead = {CANDIDATE: 2020.0, BASELINE: 1000.0}, {CANDIDATE: 1200.0, BASELINE: 2000.0}
    assert complaints(400.0, behind, ahead)


@pytest.mark.parametrize(("parent_us", "accused"), [(3600.0, True), (900.0, False)])
def test_one_that_is_far_behind_the_baseline_and_its_parent_gains_nothing(parent_us: float, accused: bool) -> None:
    found = complaints(400.0, {CANDIDATE: 3600.0, BASELINE: 1000.0, PARENT: parent_us})
    assert bool(found) is accused


def test_a_few_microseconds_are_nobodys_fault() -> None:
    assert complaints(20.0, {CANDIDATE: 500.0, BASELINE: 1000.0}) == []
