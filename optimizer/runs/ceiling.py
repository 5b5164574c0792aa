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

    Returns an empty text otherwise, and where `share` is 0. A case that is faster than its ceiling, or whose data stays
    in a cache while memory binds it, has a higher ceiling than the one that was measured, which is memory's.
    """
    if not share or run.best_kernel_id is None:
        return ""
    leading = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first()
    result = leading.as_readable_result() if leading else None
    shares = [case.roofline_share for case in result.cases if case.roofline_share] if result else []
    if result is None or not shares or min(shares) < share or max(shares) > 1 + ABOVE_CEILING:
        return ""
    if any(_stays_in_cache(case.name, result, run) for case in result.cases if case.roofline_share):
        return ""
    return f"The best kernel reaches {100 * min(shares):.0f} % of the measured roofline in every case."


def _stays_in_cache(name: str, result: JobResult, run: Run) -> bool:
    """Return True for a case that memory binds and whose data fits into the device's largest cache."""
    profile = result.profile.get("cases")
    seen = profile.get(name) if isinstance(profile, dict) else None
    if isinstance(seen, dict) and seen.get("bound") == "compute":
        return False
    problem = problem_of(run)
    case = next((one for one in problem.cases(run.target.key, Purpose.BENCHMARK) if one.name == name), None)
    work = problem.work(case) if case is not None else None
    target = TARGETS.get(run.target.key)
    return work is not None and target is not None and work.bytes <= target.last_level_bytes
