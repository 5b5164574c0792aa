"""Make times comparable although they were measured hours apart.

Load, clocks and temperature change the time of the same kernel, on a shared machine by up to a factor of three. Each
evaluation times the baseline alongside the candidate, so its speedup does not drift. What strategies see as a time is
therefore the speedup converted back to microseconds with the baseline of one fixed evaluation of the run, the anchor:
the first that had one. The database keeps what was measured.

  t = b / s    t: comparable time, b: the anchor's baseline in µs, s: the kernel's speedup
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from optimizer.models import Evaluation, EvaluationState, Run
from optimizer.queries.judged import judged_baseline_us, judged_mean_us, judged_speedup, judged_us
from runners.job import CaseResult, JobResult


@dataclass(frozen=True)
class Anchor:
    """Hold the baseline's times in one evaluation, in µs: the geometric mean, and the median by case."""

    overall_us: float
    cases_us: Mapping[str, float] = field(hash=False)

    def overall(self, evaluation: Evaluation) -> float | None:
        """Return the kernel's time alongside the anchor's baseline, or its plain time without a paired speedup."""
        return self.overall_us / evaluation.speedup if evaluation.speedup else evaluation.time_us

    def by_case(self, result: JobResult) -> dict[str, float]:
        """Return the comparable time of every timed case, in µs."""
        timed = {case.name: case for case in result.cases if judged_us(case, result) is not None}
        return {name: self._of_case(case, result) for name, case in timed.items()}

    def _of_case(self, case: CaseResult, result: JobResult) -> float:
        baseline_us, speedup = self.cases_us.get(case.name), judged_speedup(case, result)
        return baseline_us / speedup if baseline_us and speedup else judged_us(case, result) or 0.0


def anchor_of(run: Run) -> Anchor | None:
    """Return the run's anchor, or None before anything was timed alongside a baseline. It never changes afterwards."""
    paired = Evaluation.objects.filter(first_of__run=run, state=EvaluationState.DONE, speedup__gt=0, time_us__gt=0)
    # Rows of ended evaluations never change, so the first one stays the first.
    first = paired.order_by("finished_at", "pk").values_list("pk", flat=True).first()
    return _anchor(first) if first else None


@lru_cache(maxsize=256)
def _anchor(evaluation_id: int) -> Anchor:
    evaluation = Evaluation.objects.get(pk=evaluation_id)
    result = evaluation.as_result()
    if result is None:
        return Anchor((evaluation.time_us or 0.0) * (evaluation.speedup or 0.0), {})
    cases = {case.name: us for case in result.cases if (us := judged_baseline_us(case, result))}
    time_us = judged_mean_us(result) or evaluation.time_us or 0.0
    return Anchor(time_us * (evaluation.speedup or 0.0), cases)
