"""Measure what was only reported, before a run ends: a claim may be the best kernel, and nobody has checked it.

The fastest claims that would lead are measured, a bounded number of them. They were asked for by nobody in particular,
so a budget of evaluations that is used up does not keep them out; budgets of time do.
"""

from __future__ import annotations

from optimizer.events.payloads import RunNoted
from optimizer.events.record import record
from optimizer.models import Evaluation, EvaluationState, Kernel, Run
from optimizer.runs.dispatch import begin_reported

SETTLED = "claim_settled"


def measure_claims(run: Run, most: int) -> list[Kernel]:
    """Queue the fastest claims that are still missing and return their kernels; an empty list when none is left.

    Call under the run's lock, while nothing of the run is open.
    """
    room = most - run.kernels.filter(meta__has_key=SETTLED).count()
    chosen = _claims(run)[: max(0, room)]
    for kernel in chosen:
        kernel.meta[SETTLED] = True
        kernel.save(update_fields=["meta"])
        begin_reported(run, kernel)
    if chosen:
        named = ", ".join(f"#{kernel.number}" for kernel in chosen)
        record(run, RunNoted(text=f"Measuring reported kernels: {named}."))
    return chosen


def _claims(run: Run) -> list[Kernel]:
    """Return the kernels whose reported time would lead, fastest first."""
    best = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first() if run.best_kernel_id else None
    limit = best.time_us if best else None
    reported = run.kernels.filter(evaluation__state=EvaluationState.REPORTED).select_related("evaluation")
    times = {kernel.pk: float(kernel.meta["reported"]["time_us"]) for kernel in reported}
    ahead = [kernel for kernel in reported if limit is None or times[kernel.pk] < limit]
    return sorted(ahead, key=lambda kernel: (times[kernel.pk], kernel.number))
