"""Enforce budgets, the hard limits of a run.

Evaluations are counted while they are open, so their number is never exceeded. Tokens and dollars are known only
afterwards, so work under way may exceed them. Of the device minutes, what open evaluations and the confirmation of
the best kernel will take is kept back, as far as earlier evaluations tell. Seeds, people's edits, confirmations and
duplicates do not count as evaluations; their device time does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from django.db.models import QuerySet

from optimizer.events.payloads import BudgetWarned
from optimizer.events.record import record
from optimizer.models import Evaluation, EvaluationPurpose, Run
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.budgets import LABELS, WARN_AT_PERCENT, budget_lines
from optimizer.queries.device_time import device_time_of
from optimizer.queries.outcomes import SEARCHED
from optimizer.runs.strategies import settings_of
from runners.job import Effort


def exhausted(run: Run) -> str | None:
    """Return in words which budget is used up, or None."""
    empty = next((line for line in budget_lines(run) if line.percent >= 100), None)
    if empty is not None:
        return f"The budget of {empty.limit:g} {LABELS[empty.kind]} is used up."
    room = device_room(run)
    if room is None or room.evaluations > 0 or open_on_device(run).exists():
        return None
    return (
        f"{room.left_s:.3g} s of {run.budget_device_minutes:g} device minutes are left: not enough for another "
        f"evaluation ({room.each_s:.3g} s) and the confirmation ({room.confirmation_s:.3g} s)."
    )


def ended_by_budget(run: Run) -> bool:
    """Return whether a finished run ended because a budget was used up."""
    return exhausted(run) is not None if run.ended_by_budget is None else run.ended_by_budget


def counted_open(run: Run) -> int:
    """Count the open evaluations that will count against the budget."""
    return Evaluation.objects.filter(SEARCHED, first_of__run=run, state__in=OPEN_EVALUATION_STATES).count()


def evaluations_left(run: Run) -> int | None:
    """Return how many more evaluations may be started; None is unlimited."""
    limits = []
    if run.budget_evaluations is not None:
        limits.append(max(0, run.budget_evaluations - run.spent_evaluations - counted_open(run)))
    if (room := device_room(run)) is not None:
        limits.append(room.evaluations)
    return min(limits, default=None)


@dataclass(frozen=True)
class DeviceRoom:
    """Hold how many more `evaluations` fit into the device time that is left, when each takes `each_s`.

    `confirmation_s` is kept back for the confirmation of the best kernel, 0 where there is none.
    """

    left_s: float
    each_s: float
    confirmation_s: float
    evaluations: int
    confirmations: int


def device_room(run: Run) -> DeviceRoom | None:
    """Return the room in the budget of device minutes; None without one, or before an evaluation has ended."""
    if run.budget_device_minutes is None or (device := device_time_of(run)) is None:
        return None
    left_s = 60 * run.budget_device_minutes - run.spent_device_s
    kept_s = device.confirmation_s if settings_of(run).confirm else 0.0
    free_s = left_s - kept_s - device.typical_s * open_on_device(run).count()
    # A hair more than a whole number is that number.
    evaluations, confirmations = _times(free_s, device.typical_s), _times(left_s, device.confirmation_s)
    return DeviceRoom(left_s, device.typical_s, kept_s, evaluations, confirmations)


def _times(left_s: float, each_s: float) -> int:
    """Return how often `each_s` fits; a hair less than a whole number is that number."""
    return max(0, math.floor(left_s / each_s + 1e-9))


def open_on_device(run: Run) -> QuerySet[Evaluation]:
    """Return the open evaluations of the search that will hold the device.

    A build does not, and neither does a kernel that takes over the result of another.
    """
    own = Evaluation.objects.filter(kernel__run=run, purpose=EvaluationPurpose.SEARCH)
    found = own.filter(state__in=OPEN_EVALUATION_STATES).exclude(effort=Effort.BUILD.value)
    return found.filter(copied_from=None).exclude(kernel__meta__has_key="twin_of")


def warn(run: Run) -> None:
    """Record an event for each threshold that a budget has newly passed. Call under the run's lock."""
    for line in budget_lines(run):
        passed = max((mark for mark in WARN_AT_PERCENT if line.percent >= mark), default=0)
        if passed > run.warned.get(line.kind, 0):
            # Only the highest threshold is announced: a budget that jumps from 40 % to 90 % warns once.
            run.warned[line.kind] = passed
            run.save(update_fields=["warned"])
            record(run, BudgetWarned(kind=line.kind, percent=passed, spent=line.spent, limit=line.limit))
