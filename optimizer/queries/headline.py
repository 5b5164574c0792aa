"""Find the measurement that a run's headline states, so that every page, report and command shows its figures."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Kernel, Run


def headline_evaluation(run: Run) -> Evaluation | None:
    """Return the evaluation of the best kernel whose speedup is the run's: its confirmation where there is one.

    Returns the first evaluation of a kernel without such a one, and None without a best kernel.
    """
    if run.best_kernel is None:
        return None
    stated = stated_among(run, list(run.best_kernel.evaluations.defer("result").order_by("pk")))
    return stated or getattr(run.best_kernel, "evaluation", None)


def stated_among(run: Run, evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the newest of a kernel's evaluations, oldest first, that states the run's headline."""
    stated = (one for one in reversed(evaluations) if one.kernel_id == run.best_kernel_id and _states(run, one))
    return next(stated, None)


def show_headline(run: Run, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Give the run's best kernel, where it is among these, the evaluation that the headline states."""
    for kernel in kernels:
        if kernel.pk == run.best_kernel_id and (stated := headline_evaluation(run)) is not None:
            kernel.evaluation = stated
    return list(kernels)


def _states(run: Run, evaluation: Evaluation) -> bool:
    is_own = evaluation.purpose == EvaluationPurpose.SEARCH and evaluation.status == EvaluationStatus.CORRECT
    return is_own and evaluation.speedup is not None and evaluation.speedup == run.best_speedup
