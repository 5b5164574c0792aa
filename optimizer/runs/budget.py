"""Enforce budgets, the hard limits of a run.

Evaluations are counted while they are open, so their number is never exceeded. Device minutes, tokens and dollars are
known only afterwards, so work under way may exceed them. Seeds, people's edits, confirmations and duplicates do not
count as evaluations; their device time does.
"""

from __future__ import annotations

from optimizer.events.payloads import BudgetWarned
from optimizer.events.record import record
from optimizer.models import Evaluation, EvaluationState, Run
from optimizer.queries.budgets import LABELS, WARN_AT_PERCENT, budget_lines
from optimizer.queries.outcomes import SEARCHED


def exhausted(run: Run) -> str | None:
    """Return in words which budget is used up, or None."""
    empty = next((line for line in budget_lines(run) if line.percent >= 100), None)
    return f"The budget of {empty.limit:g} {LABELS[empty.kind]} is used up." if empty else None


def counted_open(run: Run) -> int:
    """Count the open evaluations that will count against the budget."""
    waiting = [EvaluationState.QUEUED, EvaluationState.RUNNING]
    return Evaluation.objects.filter(SEARCHED, first_of__run=run, state__in=waiting).count()


def evaluations_left(run: Run) -> int | None:
    """Return how many more evaluations may be started; None is unlimited."""
    if run.budget_evaluations is None:
        return None
    return max(0, run.budget_evaluations - run.spent_evaluations - counted_open(run))


def warn(run: Run) -> None:
    """Record an event for each threshold that a budget has newly passed. Call under the run's lock."""
    for line in budget_lines(run):
        passed = max((mark for mark in WARN_AT_PERCENT if line.percent >= mark), default=0)
        if passed > run.warned.get(line.kind, 0):
            # Only the highest threshold is announced: a budget that jumps from 40 % to 90 % warns once.
            run.warned[line.kind] = passed
            run.save(update_fields=["warned"])
            record(run, BudgetWarned(kind=line.kind, percent=passed, spent=line.spent, limit=line.limit))
