"""Enqueue Celery tasks after the current transaction commits.

A message only says which row to look at; the row says what to do. Nothing here raises, because the periodic sweep
finds every row whose message was lost.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

TIMER_QUEUE = "timer"
AGENTS_QUEUE = "agents"
BUILD_QUEUE = "build"

logger = logging.getLogger(__name__)


def enqueue_run(run_id: int) -> None:
    """Enqueue the next step of the run, after commit."""
    transaction.on_commit(lambda: _send("optimizer.advance", run_id, TIMER_QUEUE))


def enqueue_campaign(campaign_id: int) -> None:
    """Enqueue the next step of the campaign, after commit."""
    transaction.on_commit(lambda: _send("optimizer.advance_campaign", campaign_id, TIMER_QUEUE))


def enqueue_retiming(round_id: int) -> None:
    """Enqueue the next step of a round of the regression watch, after commit."""
    transaction.on_commit(lambda: _send("optimizer.advance_retiming", round_id, TIMER_QUEUE))


def enqueue_call(call_id: int) -> None:
    """Enqueue a call to a language model, after commit."""
    transaction.on_commit(lambda: _send("optimizer.answer_call", call_id, AGENTS_QUEUE))


def enqueue_delivery(delivery_id: int) -> None:
    """Enqueue a webhook delivery, after commit."""
    transaction.on_commit(lambda: _send("optimizer.deliver", delivery_id, AGENTS_QUEUE))


def enqueue_upload(upload_id: int) -> None:
    """Enqueue the inspection of an uploaded problem, after commit."""
    transaction.on_commit(lambda: _send("optimizer.inspect_upload", upload_id, BUILD_QUEUE))


def _send(task: str, row_id: int, queue: str) -> None:
    # Import here: actions are also used where no Celery app is configured.
    from celery import current_app

    # Expire after a minute: by then the sweep has enqueued the row again, and old messages would only pile up. Do
    # not retry: a request must not wait for a broker that is down.
    options: dict[str, Any] = {"queue": queue, "expires": 60, "retry": False, "ignore_result": True}
    try:
        current_app.send_task(task, args=[row_id], **options)
    except Exception:
        logger.warning("%s(%s) could not be enqueued; the sweep will do it", task, row_id, exc_info=True)
