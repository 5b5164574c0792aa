"""Determine which of a case's two times its verdict is based on, and return the figures by that time.

A GPU case has device time and call time. A run may compare call times throughout; where device time cannot be told
apart from the host's, a case is judged by call time in any run. On a CPU there is only one time.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean

from runners.job import CaseResult, JobResult, Objective


def is_by_call(case: CaseResult, result: JobResult) -> bool:
    """Return True where the case's verdict rests on call time."""
    if not case.candidate_call_us:
        return False
    overall = result.speedup.basis if result.speedup else Objective.DEVICE
    return Objective.CALL in (case.basis, overall)


def judged_us(case: CaseResult, result: JobResult) -> float | None:
    """Return the candidate's time in µs that the verdict rests on."""
    return case.candidate_call_us if is_by_call(case, result) else case.candidate_us


def judged_baseline_us(case: CaseResult, result: JobResult) -> float | None:
    """Return the baseline's time in µs that the verdict rests on."""
    return case.baseline_call_us if is_by_call(case, result) else case.baseline_us


def judged_speedup(case: CaseResult, result: JobResult) -> float | None:
    """Return the speedup over the baseline by the time that the verdict rests on."""
    return case.call_speedup if is_by_call(case, result) else case.speedup


def as_judged(result: JobResult) -> list[CaseResult]:
    """Return the cases with the speedup and interval that their verdict rests on, for a chart of one figure a case."""
    return [
        replace(
            case,
            speedup=case.call_speedup,
            speedup_low=case.call_speedup_low,
            speedup_high=case.call_speedup_high,
        )
        if is_by_call(case, result)
        else case
        for case in result.cases
    ]


def judged_mean_us(result: JobResult) -> float | None:
    """Return the geometric mean of the judged times in µs over the timed cases; None without any."""
    times = [time for case in result.cases if (time := judged_us(case, result))]
    return geometric_mean(times) if times else None
