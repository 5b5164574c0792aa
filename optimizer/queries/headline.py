"""Find the measurement that a run's headline states, so that its cases stand beside it and not those of another."""

from __future__ import annotations

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Run


def headline_evaluation(run: Run) -> Evaluation | None:
    """Return the evaluation of the best kernel whose speedup is the run's: its confirmation where there is one.

    Returns the first evaluation of a kernel without such a one, and None without a best kernel.
    """
    if run.best_kernel is None:
        return None
    own = run.best_kernel.evaluations.filter(purpose=EvaluationPurpose.SEARCH, status=EvaluationStatus.CORRECT)
    stated = own.filter(speedup=run.best_speedup).order_by("-pk").first()
    return stated or getattr(run.best_kernel, "evaluation", None)
