"""Check whether measured times are plausible. Each complaint is a sentence, and one is enough for the status
`suspect`."""

from __future__ import annotations

import random
from collections.abc import Iterator

from runners.errors import BASELINE, CANDIDATE
from runners.harness.timing.sessions import Timings, overall_us
from runners.harness.verdict.report import SEEN_FACTOR
from runners.job import Speedup
from runners.problems.base import Case, Problem
from runners.targets import Target

# By how much a claim may exceed what the referee saw.
CLOCK_MARGIN = 1.02
# How much longer than the baseline a candidate may keep the device busy outside its events.
BUSY_US, BUSY_SHARE = 4.0, 0.05
# Below this speedup over every other side that is not held against a candidate, which gains nothing by it. An honest
# kernel with streams of its own, at 0.28×, kept the device busy for 8 µs longer on a slow host.
FAR_BEHIND = 0.5


def failed_checks(
    problem: Problem, cases: list[Case], target: Target, timings: Timings, claimed: Speedup, rng: random.Random
) -> list[str]:
    """Return everything that speaks against the times. `claimed` is the speedup over the baseline that they amount
    to."""
    found = [line for case in cases for line in _of_case(problem, case, target, timings, rng)]
    seen = timings.referee_speedup(BASELINE, rng)
    if claimed.low > max(claimed.band, seen.high * CLOCK_MARGIN):
        found.append(f"claims {claimed.median:.3g}×, but the referee's clock saw {seen.median:.3g}×")
    return found


def claims_far_more(timings: Timings, opponent: str, claimed: Speedup, rng: random.Random) -> bool:
    """Return whether a claim is far beyond what the referee's clock saw, and the clocks disagree by more than load
    explains.

    This is no proof of cheating: after a few units the referee's interval may be too wide to contradict any claim. But
    a time that only the candidate's process has seen must not be ranked, even below the baseline. In quick timing, a
    kernel that slows its own clock claimed 0.57 times the baseline's speed where 0.01 was true.
    """
    if all(timings.clocks_agree(case, strictly=False) for case in timings.sessions):
        return False
    return claimed.low > SEEN_FACTOR * timings.referee_speedup(opponent, rng).median


def clocks_log(timings: Timings) -> str:
    """Return one line for each case that compares what the candidate claims with what the referee's clock saw."""
    rng = random.Random(0)  # noqa: S311 - no secret
    return "\n".join(_clocks_of(timings, case, rng) for case in timings.sessions)


def _clocks_of(timings: Timings, case: str, rng: random.Random) -> str:
    claimed, seen = timings.case_speedup(case, BASELINE, rng), timings.referee_speedup(BASELINE, rng, case)
    ours, theirs = (timings.beside_a_call_us(case, side) for side in (CANDIDATE, BASELINE))
    return (
        f"{case}: claims {claimed.median:.3g}×, the referee's clock saw {seen.median:.3g}× "
        f"({seen.low:.3g} to {seen.high:.3g}); beside its calls a request takes {ours:.1f} µs per call, "
        f"the baseline's {theirs:.1f} µs"
    )


def _of_case(problem: Problem, case: Case, target: Target, timings: Timings, rng: random.Random) -> Iterator[str]:
    floor = target.floor_us(problem.work(case))
    measured = overall_us(timings)[case.name]
    if floor is not None and measured < floor:
        yield f"{case.name}: {measured:.3g} µs is under the floor of {floor:.3g} µs that physics sets"
    hidden_us = timings.busy_beyond_events_us(case.name, BASELINE)
    if hidden_us > BUSY_US + BUSY_SHARE * measured and not timings.is_below(FAR_BEHIND, rng):
        yield f"{case.name}: the device was busy {hidden_us:.3g} µs longer than its events say"
    if timings.overstates(case.name, rng):
        yield f"{case.name}: the referee's clock does not agree with the process's own"
