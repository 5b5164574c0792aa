"""Enforce budgets, the hard limits of a run.

Evaluations are counted while they are open, so their number is never exceeded. Device minutes, tokens and dollars are
known only afterwards, so work under way may exceed them. Seeds, people's edits, confirmations and duplicates do not
count as evaluations; their device time does.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from optimizer.events.payloads import BudgetWarned
from optimizer.events.record import record
from optimizer.models import AuthorKind, Evaluation, EvaluationState, Run

WARN_AT_PERCENT = (50, 80, 100)
# Kernels that no strategy has searched for: every run has the seeds, and a person's edit is not the strategy's.
UNCOUNTED = (AuthorKind.SEED, AuthorKind.PERSON)


@dataclass(frozen=True)
class BudgetLine:
    """Hold one budget; `spent` and `limit` are in the unit that `kind` names."""

    kind: str
    spent: float
    limit: float

    @property
    def percent(self) -> float:
        """Return the share spent in per cent; a limit of zero is spent from the start."""
        return 100.0 * self.spent / self.limit if self.limit > 0 else 100.0


LABELS = {
    "evaluations": "evaluations",
    "minutes": "active minutes",
    "usd": "dollars",
    "tokens": "tokens",
    "device_minutes": "device minutes",
}


def lines(run: Run) -> list[BudgetLine]:
    """Return the budgets that the run has."""
    spent: dict[str, float | Decimal] = {
        "evaluations": run.spent_evaluations,
        "minutes": run.elapsed_s() / 60,
        "usd": run.spent_usd,
        "tokens": run.spent_tokens,
        "device_minutes": run.spent_device_s / 60,
    }
    limits = {kind: getattr(run, f"budget_{kind}") for kind in spent}
    return [
        BudgetLine(kind, float(spent[kind]), float(limit)) for kind, limit in limits.items() if limit is not None
    ]


def exhausted(run: Run) -> str | None:
    """Return in words which budget is used up, or None."""
    empty = next((line for line in lines(run) if line.percent >= 100), None)
    return f"The budget of {empty.limit:g} {LABELS[empty.kind]} is used up." if empty else None


def counted_open(run: Run) -> int:
    """Count the open evaluations that will count against the budget."""
    return (
        Evaluation.objects.filter(first_of__run=run, state__in=[EvaluationState.QUEUED, EvaluationState.RUNNING])
        .exclude(kernel__author_kind__in=UNCOUNTED)
        # A duplicate costs no evaluation, since it takes over the outcome of its original.
        .exclude(kernel__meta__has_key="twin_of")
        .count()
    )


def evaluations_left(run: Run) -> int | None:
    """Return how many more evaluations may be started; None is unlimited."""
    if run.budget_evaluations is None:
        return None
    return max(0, run.budget_evaluations - run.spent_evaluations - counted_open(run))


def warn(run: Run) -> None:
    """Record an event for each threshold that a budget has newly passed. Call under the run's lock."""
    for line in lines(run):
        passed = max((mark for mark in WARN_AT_PERCENT if line.percent >= mark), default=0)
        if passed > run.warned.get(line.kind, 0):
            # Only the highest threshold is announced: a budget that jumps from 40 % to 90 % warns once.
            run.warned[line.kind] = passed
            run.save(update_fields=["warned"])
            record(run, BudgetWarned(kind=line.kind, percent=passed, spent=line.spent, limit=line.limit))
