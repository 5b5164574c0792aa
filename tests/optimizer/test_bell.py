"""Test the message that sends workers to the queue: it may be lost, and nobody waits for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from celery import Celery
from django.conf import settings

from runners.dispatch.celery import notify_worker


def test_ringing_while_redis_is_away_neither_fails_nor_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An application makes itself the current one, for the rest of the process, unless it is told not to.
    app = Celery(broker=f"redis+socket://{tmp_path}/redis.sock", set_as_current=False)
    app.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    monkeypatch.setattr("celery.current_app", app)

    began = time.monotonic()
    notify_worker("bench.cpu")

    assert time.monotonic() - began < 3, "kombu's own patience is 6 s"
