"""Revive work that has lost its worker or its message.

The sweep runs every few seconds, on any machine, any number of times concurrently: each revival is a conditional
update.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db.models import F, Q
from django.db.models.functions import Now

from optimizer import queue
from optimizer.actions.inbox import do_expire_prompts
from optimizer.actions.job import do_fail_job, do_let_go
from optimizer.actions.problem_upload import do_drop_old_uploads
from optimizer.calls.lifecycle import do_give_up_lost_call
from optimizer.enqueue import (
    enqueue_call,
    enqueue_campaign,
    enqueue_delivery,
    enqueue_retiming,
    enqueue_run,
    enqueue_upload,
)
from optimizer.models import (
    CallState,
    Campaign,
    DeliveryState,
    LlmCall,
    ProblemUpload,
    RetimeRound,
    Run,
    RunState,
    WebhookDelivery,
)
from optimizer.runs.dispatch import notify_on_commit

ENQUEUE_AGAIN_AFTER = dt.timedelta(seconds=10)
ADVANCED_EVERY = dt.timedelta(seconds=15)

T = TypeVar("T")
logger = logging.getLogger(__name__)


def sweep() -> dict[str, int]:
    """Revive everything that may have been lost and return the counts by kind."""
    return {
        "failed_jobs": _each(queue.used_up(), lambda lost: do_fail_job(lost[0], lost[1], _WHY_FAILED)),
        "cancelled_jobs": _each(queue.lost_while_cancelled(), lambda lost: do_let_go(lost[0], lost[1])),
        "notified_queues": _each(queue.claimable_queues(), lambda where: notify_on_commit(where[0], where[1])),
        "lost_calls": _each(_lost_calls(), do_give_up_lost_call),
        # Expire before enqueueing, so that a run does not wait one more round for a prompt that has lapsed.
        "expired_prompts": do_expire_prompts(),
        "enqueued_calls": _each(_unenqueued_calls(), enqueue_call),
        "enqueued_runs": _each(_idle_runs(), enqueue_run),
        "enqueued_campaigns": _each(_idle_campaigns(), enqueue_campaign),
        "enqueued_retimings": _each(_idle_rounds(), enqueue_retiming),
        "enqueued_deliveries": _each(_due_deliveries(), enqueue_delivery),
        "enqueued_uploads": _each(_unheard_uploads(), enqueue_upload),
        "dropped_uploads": do_drop_old_uploads(),
    }


_WHY_FAILED = f"Its worker was lost {queue.MAX_ATTEMPTS} times."


def _each(found: Iterable[T], revive: Callable[[T], object]) -> int:
    """Revive items one by one; a failure with one does not affect the others."""
    count = 0
    for item in found:
        try:
            revive(item)
            count += 1
        except Exception:
            logger.exception("the sweep failed to revive %r", item)
    return count


def _lost_calls() -> list[int]:
    lost = LlmCall.objects.filter(state=CallState.ASKING, lease_until__lt=Now())
    return list(lost.values_list("pk", flat=True))


def _unenqueued_calls() -> list[int]:
    # Give the original message some seconds, or every call would be enqueued twice.
    unheard = LlmCall.objects.filter(state=CallState.QUEUED, created_at__lt=Now() - ENQUEUE_AGAIN_AFTER)
    return list(unheard.exclude(lease_until__gt=Now()).values_list("pk", flat=True)[:100])


def _idle_runs() -> list[int]:
    """Return live runs that were not advanced lately, never advanced ones first."""
    live = Run.objects.filter(state__in=[RunState.PENDING, RunState.RUNNING, RunState.STOPPING])
    idle = live.filter(Q(advanced_at=None) | Q(advanced_at__lt=Now() - ADVANCED_EVERY))
    # The longest idle first: with more than 200 live runs, every run gets its turn over several sweeps.
    return list(idle.order_by(F("advanced_at").asc(nulls_first=True)).values_list("pk", flat=True)[:200])


def _idle_campaigns() -> list[int]:
    """Return live campaigns that were not advanced lately."""
    idle = Campaign.objects.live().filter(Q(advanced_at=None) | Q(advanced_at__lt=Now() - ADVANCED_EVERY))
    return list(idle.order_by(F("advanced_at").asc(nulls_first=True)).values_list("pk", flat=True)[:50])


def _idle_rounds() -> list[int]:
    """Return open rounds of the regression watch that were not advanced lately."""
    idle = RetimeRound.objects.filter(
        Q(advanced_at=None) | Q(advanced_at__lt=Now() - ADVANCED_EVERY), finished_at=None
    )
    return list(idle.order_by("pk").values_list("pk", flat=True)[:50])


def _due_deliveries() -> list[int]:
    """Return due deliveries, including those whose sender was lost, since a claim moves `next_at` past its lease."""
    due = WebhookDelivery.objects.filter(state=DeliveryState.WAITING, next_at__lt=Now())
    return list(due.order_by("next_at").values_list("pk", flat=True)[:50])


def _unheard_uploads() -> list[int]:
    # As with calls: the original message has had its time.
    waiting = ProblemUpload.objects.claimable().filter(created_at__lt=Now() - ENQUEUE_AGAIN_AFTER)
    return list(waiting.order_by("pk").values_list("pk", flat=True)[:50])
