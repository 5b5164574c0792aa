"""List what a run settled in cold processes before it ended."""

from __future__ import annotations

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationState, Run
from runners.job import Effort


def settled_in(run: Run) -> list[Evaluation]:
    """Return the run's finished confirmations in the order they were asked for, with kernel and opponent."""
    done = Evaluation.objects.filter(
        kernel__run=run, purpose=EvaluationPurpose.SEARCH, effort=Effort.CONFIRM.value, state=EvaluationState.DONE
    ).select_related("kernel", "opponent")
    heavy = ("result", "kernel__source", "kernel__report", "kernel__meta", "opponent__source", "opponent__report",
             "opponent__meta")  # fmt: skip
    return list(done.defer(*heavy).order_by("pk"))
