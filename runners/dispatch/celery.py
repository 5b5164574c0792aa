"""Dispatch jobs through Celery: one queue for each target, and one for builds that need no device.

A message only says "look at the queue"; the job itself stays in the database.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from runners.dispatch.base import Dispatcher
from runners.job import Effort

BUILD_QUEUE = "build"
BENCH_PREFIX = "bench."

logger = logging.getLogger(__name__)


class CeleryDispatcher(Dispatcher):
    """Send jobs to workers that listen on `bench.<target>`.

    Static builds go to `build`, which any machine may serve. A build that belongs to a measurement happens inside
    that measurement's job, under its device lock, so that compilers do not disturb a clock on the same machine.
    """

    name: ClassVar[str] = "celery"
    title: ClassVar[str] = "Workers on this queue"

    def queue_for(self, target: str, effort: Effort) -> str:
        """Return `build` for what needs no device, else the target's own queue."""
        return BUILD_QUEUE if effort == Effort.BUILD else f"{BENCH_PREFIX}{target}"

    def notify(self, queue: str) -> None:
        """Send one small message. It expires soon, since the sweep repeats it while jobs wait."""
        notify_worker(queue)


def notify_worker(queue: str) -> None:
    """Send the workers of a queue to look at it. Never raises."""
    # A spool machine imports this module without Celery installed.
    from celery import current_app

    try:
        current_app.send_task(
            "runners.look", args=[queue], queue=queue, expires=60, retry=False, ignore_result=True
        )
    except Exception:
        logger.warning("no message could be sent to %s; the sweep will", queue, exc_info=True)


def drop_messages(queue: str) -> None:
    """Delete the messages of a queue whose workers ask the site themselves, since nobody reads them. Never raises."""
    from celery import current_app
    from kombu import Queue

    try:
        with current_app.connection_for_write() as connection:
            Queue(queue, channel=connection.default_channel).purge()
    except Exception:
        logger.warning("the messages to %s could not be deleted", queue, exc_info=True)
