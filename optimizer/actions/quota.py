"""Limit what one person may have waiting and may store, over all their runs, so that nobody can use up a site alone.

The system itself, campaigns and agents that a run asks are limited by budgets. A quota is far above what people do by
hand, and is checked while the person's own row is locked: of many requests at once, none slips through.
"""

from __future__ import annotations

from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db.models import Func, IntegerField, Sum
from django.utils import timezone

from optimizer.models import Kernel, Run, RunState, User
from optimizer.models.choices import OPEN_EVALUATION_STATES

# Runs that have not ended, of those that the person started.
MOST_LIVE_RUNS = 300
# Kernels that the person suggested or submitted and that wait for their evaluation.
MOST_WAITING_KERNELS = 500
# Kernels that a person stores within a day, and their sources.
MOST_KERNELS_A_DAY = 10_000
MOST_BYTES_A_DAY = 256 << 20
_ENDED = [state for state in RunState if state.is_terminal]


def check_room_for_run(user: User | None) -> None:
    """Raise ValidationError where the person has as many runs under way as they may. Call inside a transaction."""
    if user is None:
        return
    lock_person(user)
    live = Run.objects.filter(created_by=user, campaign_cell__isnull=True).exclude(state__in=_ENDED).count()
    if live >= MOST_LIVE_RUNS:
        raise ValidationError(f"{live} of your runs have not ended yet. Stop some of them, or wait.")


def check_room_for_kernel(user: User | None, source_bytes: int = 0, *, measured: bool = True) -> None:
    """Raise ValidationError where the person has too many kernels waiting, or stored today. Call inside a transaction.

    `measured` says whether the kernel is going to wait for its evaluation.
    """
    if user is None:
        return
    lock_person(user)
    mine = Kernel.objects.filter(author=user)
    waiting = mine.filter(evaluation__state__in=OPEN_EVALUATION_STATES).count() if measured else 0
    if waiting >= MOST_WAITING_KERNELS:
        raise ValidationError(f"{waiting} of your kernels wait for their evaluation. Read their verdicts first.")
    today = mine.filter(created_at__gt=timezone.now() - timedelta(days=1))
    if today.count() >= MOST_KERNELS_A_DAY:
        raise ValidationError(f"You have stored {MOST_KERNELS_A_DAY:,} kernels within a day. Try again tomorrow.")
    # PostgreSQL knows the length of a long text without reading it.
    length = Func("source", function="octet_length", output_field=IntegerField())
    stored = today.aggregate(stored=Sum(length))["stored"] or 0
    if stored + source_bytes > MOST_BYTES_A_DAY:
        raise ValidationError(f"Your kernels of one day have at most {MOST_BYTES_A_DAY >> 20} MiB together.")


def lock_person(user: User) -> None:
    """Lock the person's row until the transaction ends, except against rows that refer to the person."""
    # FOR UPDATE would make every other transaction that writes such a row wait for this one, and deadlock with one that
    # holds the run's lock.
    User.objects.select_for_update(no_key=True).only("pk").get(pk=user.pk)
