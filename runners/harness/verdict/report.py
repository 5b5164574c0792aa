"""Convert what was seen to the results of the contract."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

from runners.errors import BASELINE, CANDIDATE, PARENT
from runners.harness.timing.sessions import Timings
from runners.harness.timing.statistics import verdict
from runners.harness.verdict.checks import CaseOutcome
from runners.job import CaseResult, Flag, JobSpec, Objective, Speedup, Verdict
from runners.problems import open_bundle
from runners.targets import target

# How far the referee's clock may stay behind a claimed speedup before a win is no longer believed: where it saw none,
# and where it saw one.
UNSEEN_FACTOR, SEEN_FACTOR = 1.5, 3.0


# A call that takes this many times its device time is limited by the host.
HOST_BOUND = 1.5


def speedup_of(
    timings: Timings, opponent: str, label: str, floor: float, rng: random.Random, basis: Objective | None = None
) -> Speedup:
    """Return the speedup over all cases against one opponent with its verdict.

    Each case counts by its own basis unless one is given. A win that the referee's own clock did not see, or that
    load on the machine hid from it, is `same`: nothing was shown. A win that the whole interval of the referee's clock
    shows counts despite load, since that clock includes everything that a candidate could leave out of its own times.
    """
    interval = timings.speedup(opponent, rng, basis)
    found = verdict(interval, floor)
    if found is Verdict.FASTER and not _seen(timings, opponent, interval.low, floor, rng):
        found = Verdict.SAME
    bases = {basis or timings.basis(case, opponent) for case in timings.sessions}
    shown = Objective.CALL if bases == {Objective.CALL} else Objective.DEVICE
    return Speedup(interval.median, interval.low, interval.high, label, floor, found, shown)


def _seen(timings: Timings, opponent: str, claimed: float, floor: float, rng: random.Random) -> bool:
    seen = timings.referee_speedup(opponent, rng)
    if seen.low > floor and seen.low * SEEN_FACTOR >= claimed:
        return True
    # Strictly: what load hides is not shown, so it does not count as a win.
    agreed = all(timings.clocks_agree(case, strictly=True) for case in timings.sessions)
    return agreed and seen.median * (SEEN_FACTOR if seen.median > 1 else UNSEEN_FACTOR) >= claimed


def case_results(
    spec: JobSpec,
    outcomes: list[CaseOutcome],
    timings: Timings | None,
    failed: tuple[str, str] | None,
    rng: random.Random,
) -> list[CaseResult]:
    """Return one result for each case: the checked ones first, then the timed ones."""
    checked = [_checked(outcome) for outcome in outcomes]
    if timings is not None:
        return checked + [_timed(spec, timings, case, failed, rng) for case in timings.sessions]
    names = {case.name for case in checked}
    if failed is not None and failed[0] not in names:
        checked.append(CaseResult(failed[0], False, failed[1]))
    return checked


def _checked(outcome: CaseOutcome) -> CaseResult:
    return CaseResult(
        outcome.case.name,
        outcome.error is None,
        outcome.error,
        max_abs_error=outcome.max_abs_error,
        max_rel_error=outcome.max_rel_error,
    )


def _timed(
    spec: JobSpec, timings: Timings, case: str, failed: tuple[str, str] | None, rng: random.Random
) -> CaseResult:
    sessions = timings.sessions[case]
    sides = [side for side in (CANDIDATE, BASELINE, PARENT) if side in sessions[0].sides]
    ours = timings.time(case, CANDIDATE, rng)
    basis = timings.basis(case)
    ratio = timings.case_speedup(case, BASELINE, rng, basis)
    judged = [judgement for session in sessions for judgement in session.judgements]
    error = failed[1] if failed is not None and failed[0] == case else None
    roofline_us = target(spec.target).roofline_us(open_bundle(spec.problem).work(sessions[0].case))
    result = CaseResult(
        case,
        error is None,
        error,
        candidate_us=ours.median,
        candidate_low_us=ours.low,
        candidate_high_us=ours.high,
        baseline_us=median(timings.samples(case, BASELINE)),
        parent_us=median(timings.samples(case, PARENT)) if PARENT in sides else None,
        speedup=ratio.median,
        speedup_low=ratio.low,
        speedup_high=ratio.high,
        roofline_us=roofline_us,
        roofline_share=None if roofline_us is None else roofline_us / ours.median,
        max_abs_error=max((j.max_abs_error for j in judged), default=None),
        max_rel_error=max((j.max_rel_error for j in judged), default=None),
        samples={side: timings.samples(case, side) for side in sides},
        basis=basis,
    )
    return _with_call_time(result, timings, sides, rng) if timings.has_call_time else result


def _with_call_time(result: CaseResult, timings: Timings, sides: list[str], rng: random.Random) -> CaseResult:
    """Add what a call takes with the host, and the flags that relate the two times."""
    case = result.name
    times = {side: median(timings.samples(case, side, Objective.CALL)) for side in sides}
    ratio = timings.case_speedup(case, BASELINE, rng, Objective.CALL)
    flags = timings.waits(case)
    if not flags and times[CANDIDATE] > HOST_BOUND * (result.candidate_us or 0.0):
        flags = [Flag.HOST_BOUND]
    return replace(
        result,
        candidate_call_us=times[CANDIDATE],
        baseline_call_us=times[BASELINE],
        parent_call_us=times.get(PARENT),
        call_speedup=ratio.median,
        call_speedup_low=ratio.low,
        call_speedup_high=ratio.high,
        flags=flags,
    )
