"""Find the measurement by which a kernel is stated, so that every page, report and command shows the same figures.

A kernel that was settled in cold processes is stated by that confirmation, any other one by its first evaluation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Kernel, Run
from runners.job import Effort


def headline_evaluation(run: Run) -> Evaluation | None:
    """Return the evaluation of the best kernel whose speedup is the run's: its confirmation where there is one.

    Returns the first evaluation of a kernel without such a one, and None without a best kernel.
    """
    return next((kernel.evaluation for kernel in show_stated(run, _best(run)) if _has_evaluation(kernel)), None)


def stated_among(run: Run, evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the one of a kernel's evaluations, oldest first, that states it; None where none has confirmed it.

    For the run's best kernel that is the one which the headline repeats.
    """
    newest_first = [one for one in reversed(evaluations) if _is_own(one)]
    headline = (one for one in newest_first if one.kernel_id == run.best_kernel_id and _repeats(run, one))
    confirmed = (one for one in newest_first if one.effort == Effort.CONFIRM.value)
    return next(headline, None) or next(confirmed, None)


def show_stated(run: Run, kernels: Iterable[Kernel]) -> list[Kernel]:
    """Give each kernel the evaluation that states it in place of its first one, and `against_parent`. One query."""
    shown = list(kernels)
    by_kernel = defaultdict(list)
    for one in Evaluation.objects.filter(kernel__in=shown, first_of=None).defer("result").order_by("pk"):
        by_kernel[one.kernel_id].append(one)
    for kernel in shown:
        first, stated = getattr(kernel, "evaluation", None), stated_among(run, by_kernel[kernel.pk])
        kernel.against_parent = against_parent(stated or first, first)
        if stated is not None:
            kernel.evaluation = stated
    return shown


def against_parent(shown: Evaluation | None, first: Evaluation | None) -> Evaluation | None:
    """Return the evaluation that compares a kernel with its parent, for a page that shows its evaluation `shown`.

    A confirmation is timed against another finalist, so the first evaluation takes its place.
    """
    return first if shown and shown.effort == Effort.CONFIRM and first else shown


def _best(run: Run) -> list[Kernel]:
    return [run.best_kernel] if run.best_kernel else []


def _has_evaluation(kernel: Kernel) -> bool:
    return getattr(kernel, "evaluation", None) is not None


def _is_own(evaluation: Evaluation) -> bool:
    """Return False for timings of campaigns, boards and the regression watch, and for what was not timed."""
    is_search = evaluation.purpose == EvaluationPurpose.SEARCH
    return is_search and evaluation.status == EvaluationStatus.CORRECT and evaluation.speedup is not None


def _repeats(run: Run, evaluation: Evaluation) -> bool:
    return evaluation.speedup == run.best_speedup
