"""Test that a small or uncertain difference is measured in more sessions before it is called one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from runners.errors import BASELINE, CANDIDATE, PARENT
from runners.harness.comparison import SMALL_FACTOR, Comparison
from runners.harness.findings import Findings
from runners.harness.stages import Stages
from runners.harness.timing.measurements import CaseSession, Series, SideTimes
from runners.harness.timing.plan import CONFIRM, FULL, QUICK, Plan
from runners.harness.timing.sessions import Timings
from runners.harness.timing.statistics import TimedRequest
from runners.job import Effort, JobSpec, Language, Limits, NoiseFloor, Source, Verdict
from runners.problems import load
from runners.problems.base import Case, Purpose
from runners.targets import target

CASES = [Case(name, {}, Purpose.BENCHMARK) for name in ("one", "two")]
CALL_US = 1000.0


class Measured:
    """Stand for the bench: each session shows one speedup in every case, given by opponent and session."""

    class Oracle:
        """Compute on a CPU."""

        on_gpu = False

    def __init__(self, **speedups: list[float]) -> None:
        self._speedups, self.sessions = speedups, 0
        self.oracle = self.Oracle()

    def measure(
        self, plan: Plan, sides: Any, progress: Any, at_end: Any = None, timings: Timings | None = None
    ) -> Timings:
        timings = timings or Timings({case.name: [] for case in CASES})
        for _ in range(plan.sessions):
            for case in CASES:
                timings.sessions[case.name].append(self._session(case))
            self.sessions += 1
        return timings

    def _session(self, case: Case) -> CaseSession:
        times = {CANDIDATE: CALL_US}
        times |= {name: CALL_US * many[self.sessions % len(many)] for name, many in self._speedups.items()}
        return CaseSession(case, {name: SideTimes(series(us)) for name, us in times.items()})


def series(us: float) -> Series:
    """Return four units of blocks that all took that long, by both clocks."""
    noise = random.Random(us)
    blocks = [[us * noise.gauss(1, 0.0005) for _ in range(2)] for _ in range(4)]
    flat = [block for unit in blocks for block in unit]
    return Series(
        flat,
        blocks,
        [TimedRequest(4 * (1 + n % 2), 4 * (1 + n % 2) * b, 4 * (1 + n % 2) * b + 30) for n, b in enumerate(flat)],
    )


def compared(bench: Measured, plan: Plan = FULL, limits: Limits | None = None) -> dict[str, Verdict]:
    """Measure by a plan, and return the verdicts against the opponents."""
    spec = JobSpec("one", load("softmax_rows"), "cpu", Source(Language.CPP, ""), Effort.FULL)
    found = Findings(floor=NoiseFloor(1.01))
    comparison = Comparison(spec, target("cpu"), Stages(limits or Limits(), None, None), found, random.Random(2))
    given: Any = bench
    timings = comparison._measured(given, plan, {}, "timing")
    return {name: speedup.verdict for name, speedup in comparison._speedups(timings).items()}


def test_a_small_difference_that_more_sessions_show_too_counts() -> None:
    bench = Measured(baseline=[1.05, 1.051, 1.049])
    assert compared(bench) == {BASELINE: Verdict.FASTER}
    assert bench.sessions == FULL.sessions + FULL.more_sessions


def test_a_small_difference_that_only_the_first_sessions_show_is_none() -> None:
    bench = Measured(baseline=[0.95, 0.951, 0.949, 1.0, 1.0])
    assert compared(bench) == {BASELINE: Verdict.SAME}
    assert bench.sessions == FULL.sessions + FULL.more_sessions


def test_a_small_difference_from_the_parent_is_measured_again_too() -> None:
    bench = Measured(baseline=[2.0], parent=[1.04, 1.041, 1.039, 1.0, 0.99])
    assert compared(bench) == {BASELINE: Verdict.FASTER, PARENT: Verdict.SAME}


@pytest.mark.parametrize("speedups", [[1.0], [1.5], [0.6], [SMALL_FACTOR * 1.01]])
def test_what_is_the_same_or_clearly_different_costs_no_more_sessions(speedups: list[float]) -> None:
    bench = Measured(baseline=speedups)
    compared(bench)
    assert bench.sessions == FULL.sessions


def test_a_large_difference_with_a_wide_interval_is_measured_again() -> None:
    """As calls of a GRU were on a loaded host, which three sessions called 1.2 times as fast as themselves."""
    bench = Measured(baseline=[1.17, 1.2, 1.6, 0.8, 0.9])
    assert compared(bench) == {BASELINE: Verdict.SAME}
    assert bench.sessions == FULL.sessions + FULL.more_sessions


def test_a_large_difference_whose_interval_is_narrow_costs_no_more_sessions() -> None:
    bench = Measured(baseline=[1.3, 1.31, 1.32])
    assert compared(bench) == {BASELINE: Verdict.FASTER}
    assert bench.sessions == FULL.sessions


@pytest.mark.parametrize("plan", [QUICK, CONFIRM])
def test_quick_timing_and_confirmation_keep_to_their_sessions(plan: Plan) -> None:
    bench = Measured(baseline=[1.05])
    compared(bench, plan)
    assert bench.sessions == plan.sessions


@pytest.mark.parametrize(("seen", "said"), [(1.05, "same"), (0.95, "same"), (1.3, "faster"), (0.7, "slower")])
def test_a_single_session_shows_no_small_difference(seen: float, said: str) -> None:
    assert compared(Measured(baseline=[seen], parent=[seen]), QUICK) == {BASELINE: said, PARENT: said}


def test_where_the_time_does_not_suffice_the_first_sessions_decide() -> None:
    bench = Measured(baseline=[1.05])
    assert compared(bench, limits=Limits(total_s=0.0)) == {BASELINE: Verdict.FASTER}
    assert bench.sessions == FULL.sessions
