"""Define what an evaluation of a run is, once: pages, API, reports and the command line all count with it.

An evaluation is the first one of a kernel that the strategy asked for, and that ended by the kernel's own doing. Seeds,
people's edits, duplicates of an earlier kernel, confirmations and failures of a machine are none. Their number is what
`Run.spent_evaluations` counts and what the budget limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import BooleanField, Count, ExpressionWrapper, Q, QuerySet

from optimizer.models import AuthorKind, Evaluation, EvaluationState, EvaluationStatus, Run
from optimizer.models.evaluation import CANDIDATE

# Kernels that no strategy has searched for: every run has the seeds, and a person's edit is not the strategy's.
UNCOUNTED = (AuthorKind.SEED, AuthorKind.PERSON)
# A duplicate costs no evaluation, since it takes over the outcome of its original.
SEARCHED = ~Q(kernel__author_kind__in=UNCOUNTED) & ~Q(kernel__meta__has_key="twin_of")
# `Evaluation.judges_kernel` as a condition.
JUDGED = Q(
    status__in=[status for status in EvaluationStatus if status.judges_kernel], failed_side__in=("", CANDIDATE)
)
COUNTED = ExpressionWrapper(SEARCHED & JUDGED, output_field=BooleanField())


@dataclass(frozen=True)
class Outcomes:
    """Hold how a run's evaluations ended, by status.

    `others` are first evaluations that ended and do not count: seeds, people's edits, duplicates, and those that a
    machine failed. `queued` are the first evaluations that wait.
    """

    by_status: list[tuple[EvaluationStatus, int]]
    others: int = 0
    queued: int = 0

    @property
    def evaluated(self) -> int:
        """Return the number of evaluations."""
        return sum(count for _, count in self.by_status)

    @property
    def correct(self) -> int:
        """Return how many of them were correct."""
        return dict(self.by_status).get(EvaluationStatus.CORRECT, 0)

    @property
    def failures(self) -> list[tuple[EvaluationStatus, int]]:
        """Return the counts of all other outcomes."""
        return [(status, count) for status, count in self.by_status if status != EvaluationStatus.CORRECT]


def waiting_for_another_run(run: Run) -> QuerySet[Evaluation]:
    """Return the evaluations of seeds that wait for another run of the campaign to measure them."""
    return Evaluation.objects.filter(kernel__run=run, state=EvaluationState.QUEUED, copied_from__isnull=False)


def count_outcomes(run: Run) -> Outcomes:
    """Count how the run's first evaluations ended, with one query."""
    # By their kernel, which COUNTED reads too, so that PostgreSQL joins the kernels once.
    first = Evaluation.objects.filter(kernel__run=run, first_of__isnull=False).annotate(counted=COUNTED)
    rows = list(first.values_list("state", "status", "counted").annotate(n=Count("pk")))
    done = [(status, counted, n) for state, status, counted, n in rows if state == EvaluationState.DONE]
    counts = {status: n for status, counted, n in done if counted}
    return Outcomes(
        by_status=[(status, counts[status]) for status in EvaluationStatus if status in counts],
        others=sum(n for _, counted, n in done if not counted),
        queued=sum(n for state, _, _, n in rows if state == EvaluationState.QUEUED),
    )
