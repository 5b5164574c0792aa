"""Time the top of a leaderboard again, so that its figures come from one session on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.access import may
from optimizer.actions.audit import log_action
from optimizer.models import AuditAction, Evaluation, EvaluationPurpose, Kernel, Run, User
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.leaderboard import Leader
from optimizer.runs.dispatch import dispatch_again
from optimizer.runs.locking import lock_run
from runners.job import Baseline

# How many of the best kernels are timed together.
TOP = 5


def may_retime(user: User, leaders: Sequence[Leader]) -> bool:
    """Return whether the person may have some of the first leaders timed again."""
    return any(_operated(user, leaders))


def do_retime_leaders(user: User, leaders: Sequence[Leader]) -> int:
    """Queue a timing in cold processes of the first five leaders, and return how many were queued.

    Jobs of one queue are measured one after the other, so the kernels are timed within one session. Raises
    ValidationError where the person may operate none of the runs, or where all of them wait already.
    """
    allowed = list(_operated(user, leaders))
    if not allowed:
        raise ValidationError("Your role does not allow re-timing these kernels.")
    with transaction.atomic():
        # Whoever locks several runs locks them in this order, so that no two of them wait for each other.
        runs = {pk: lock_run(pk) for pk in sorted({kernel.run_id for kernel in allowed})}
        queued = [kernel for kernel in allowed if _retime(runs[kernel.run_id], kernel)]
        if not queued:
            raise ValidationError("These kernels are being timed already.")
        for kernel in queued:
            log_action(AuditAction.LEADERS_RETIMED, user, kernel.run, kernel=kernel.number)
    return len(queued)


def _operated(user: User, leaders: Sequence[Leader]) -> Iterator[Kernel]:
    """Yield the kernels of the first leaders whose runs the person may operate."""
    kernels = Kernel.objects.select_related("run__team", "run__target").in_bulk([one.pk for one in leaders[:TOP]])
    found = [kernels[one.pk] for one in leaders[:TOP] if one.pk in kernels]
    return (kernel for kernel in found if may(user, kernel.run, "operate"))


def _retime(run: Run, kernel: Kernel) -> bool:
    """Queue the timing of a kernel of a locked run, and return False where one is open already."""
    if Evaluation.objects.filter(
        kernel=kernel, purpose=EvaluationPurpose.RANKING, state__in=OPEN_EVALUATION_STATES
    ).exists():
        return False
    dispatch_again(run, kernel, EvaluationPurpose.RANKING, Baseline(run.baseline))
    return True
