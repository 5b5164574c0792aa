"""Find the measurement that a run's headline states, so that its cases stand beside it and not those of another."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Kernel, Run


def headline_evaluation(run: Run) -> Evaluation | None:
    """Return the evaluation of the best kernel whose speedup is the run's: its confirmation where there is one.

    Returns the first evaluation of a kernel without such a one, and None without a best kernel.
    """
    if run.best_kernel is None:
        return None
    own = run.best_kernel.evaluations.filter(purpose=EvaluationPurpose.SEARCH, status=EvaluationStatus.CORRECT)
    stated = own.filter(speedup=run.best_speedup).order_by("-pk").first()
    return stated or getattr(run.best_kernel, "evaluation", None)


def stated_evaluation(kernel: Kernel, evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the one of a best kernel's evaluations, in order, that its run's headline states; None for any other."""
    if kernel.run.best_kernel_id != kernel.pk:
        return None
    own = [
        one
        for one in evaluations
        if (one.purpose, one.status) == (EvaluationPurpose.SEARCH, EvaluationStatus.CORRECT)
    ]
    return next((one for one in reversed(own) if one.speedup == kernel.run.best_speedup), None)
