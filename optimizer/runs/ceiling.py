"""Decide whether a run's leader has reached the measured roofline, so that the run can end."""

from __future__ import annotations

from optimizer.models import Evaluation, Run
from optimizer.runs.history import problem_of
from runners.job import JobResult
from runners.problems.base import Purpose
from runners.targets import TARGETS

# Share by which noise alone may make a kernel faster than its measured ceiling.
ABOVE_CEILING = 0.05


def ceiling_reached(run: Run, share: float) -> str:
    """Return the reason to end the run: its leader reaches that share of the measured roofline in every case.

    Returns an empty text otherwise, and where `share` is 0. Some cases have a higher ceiling than the one that was
    measured: those that were faster than it, those whose data stays in a cache while memory binds them, and products
    that matrix units of a lower precision can compute faster.
    """
    if not share or run.best_kernel_id is None:
        return ""
    leading = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first()
    result = leading.as_readable_result() if leading else None
    shares = [case.roofline_share for case in result.cases if case.roofline_share] if result else []
    if result is None or not shares or min(shares) < share or max(shares) > 1 + ABOVE_CEILING:
        return ""
    if any(_has_higher_ceiling(case.name, result, run) for case in result.cases if case.roofline_share):
        return ""
    return f"The best kernel reaches {100 * min(shares):.0f} % of the measured roofline in every case."


def _has_higher_ceiling(name: str, result: JobResult, run: Run) -> bool:
    """Return True for a case that may get faster than its measured roofline; `ceiling_reached` says which."""
    target = TARGETS.get(run.target.key)
    problem = problem_of(run)
    case = next((one for one in problem.cases(run.target.key, Purpose.BENCHMARK) if one.name == name), None)
    work = problem.work(case) if case is not None else None
    if work is None or target is None:
        return False
    stays_in_cache = work.bytes <= target.last_level_bytes and not _is_bound_by_compute(name, result)
    return stays_in_cache or target.can_beat_roofline(work)


def _is_bound_by_compute(name: str, result: JobResult) -> bool:
    profile = result.profile.get("cases")
    seen = profile.get(name) if isinstance(profile, dict) else None
    return isinstance(seen, dict) and seen.get("bound") == "compute"
