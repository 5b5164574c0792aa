"""From what was seen to the contract's results."""

from __future__ import annotations

import random
from statistics import median

from runners.harness.checks import CaseOutcome
from runners.harness.sessions import BASELINE, PARENT, Timings
from runners.harness.statistics import verdict
from runners.harness.timing import CANDIDATE
from runners.job import CaseResult, JobSpec, Speedup, Verdict
from runners.problems import open_bundle
from runners.targets import target

UNSEEN_FACTOR, SEEN_FACTOR = 1.5, 3.0
"""How far the referee's clock may stay behind a claimed speedup before a win is no longer believed: where it saw none,
and where it saw one."""


def speedup_of(timings: Timings, opponent: str, label: str, band: float, rng: random.Random) -> Speedup:
    """Speedup over all cases against one opponent, with its verdict. A win that the referee's own clock saw nothing
    of, or that load on the machine hid from it, is `same`: nothing was shown."""
    interval = timings.speedup(opponent, rng)
    found = verdict(interval, band)
    if found is Verdict.FASTER and not _seen(timings, opponent, interval.low, rng):
        found = Verdict.SAME
    return Speedup(interval.median, interval.low, interval.high, label, band, found)


def _seen(timings: Timings, opponent: str, claimed: float, rng: random.Random) -> bool:
    seen = timings.referee_speedup(opponent, rng).median
    agreed = all(timings.clocks_agree(case, strictly=True) for case in timings.sessions)
    return agreed and seen * (SEEN_FACTOR if seen > 1 else UNSEEN_FACTOR) >= claimed


def case_results(
    spec: JobSpec,
    outcomes: list[CaseOutcome],
    timings: Timings | None,
    failed: tuple[str, str] | None,
    rng: random.Random,
) -> list[CaseResult]:
    """One result a case: checked ones first, then the timed ones."""
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
    ratio = timings.case_speedup(case, BASELINE, rng)
    judged = [judgement for session in sessions for judgement in session.judgements]
    error = failed[1] if failed is not None and failed[0] == case else None
    return CaseResult(
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
        roofline_us=target(spec.target).roofline_us(open_bundle(spec.problem).work(sessions[0].case)),
        max_abs_error=max((j.max_abs_error for j in judged), default=None),
        max_rel_error=max((j.max_rel_error for j in judged), default=None),
        samples={side: timings.samples(case, side) for side in sides},
    )
