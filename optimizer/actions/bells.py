"""Doorbells for our own tasks. They say where to look; the rows say what to do. Never raise: the sweep looks too."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

TIMER_QUEUE = "timer"
AGENTS_QUEUE = "agents"

logger = logging.getLogger(__name__)


def ring_run(run_id: int) -> None:
    """After the commit: have the run advanced."""
    transaction.on_commit(lambda: _send("optimizer.advance", run_id, TIMER_QUEUE))


def ring_call(call_id: int) -> None:
    """After the commit: have the model asked."""
    transaction.on_commit(lambda: _send("optimizer.answer_call", call_id, AGENTS_QUEUE))


def ring_delivery(delivery_id: int) -> None:
    """After the commit: have a webhook told."""
    transaction.on_commit(lambda: _send("optimizer.deliver", delivery_id, AGENTS_QUEUE))


def _send(task: str, row_id: int, queue: str) -> None:
    from celery import current_app

    options: dict[str, Any] = {"queue": queue, "expires": 60, "retry": False, "ignore_result": True}
    try:
        current_app.send_task(task, args=[row_id], **options)
    except Exception:
        logger.warning("%s(%s) could not be announced; the sweep will see to it", task, row_id, exc_info=True)
