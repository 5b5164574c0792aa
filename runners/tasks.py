"""Connect Celery to the runners: the task that looks at a queue, and the worker's own heartbeat."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from celery import shared_task
from celery.signals import celeryd_after_setup, worker_process_init
from django.conf import settings
from django.utils.module_loading import import_string

from runners.dispatch.card import DATABASE, card_of
from runners.dispatch.celery import BENCH_PREFIX, notify_worker
from runners.dispatch.kernelbot import QUEUE_PREFIX as KERNELBOT_PREFIX
from runners.job_source import OutsideSource
from runners.worker import work_once

CHECK_IN_EVERY_S = 15.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Post:
    """Name the worker of this process and its queues. Set before the pool forks."""

    name: str
    queues: tuple[str, ...]


_post = Post(f"{socket.gethostname()}-{os.getpid()}", ())


@shared_task(name="runners.look", ignore_result=True)
def look(queue: str) -> None:
    """Do one job of the queue and send a message for the next, so that a worker that is asked to end can end between
    jobs.

    Several messages for one job do no harm: a worker that comes too late finds nothing.
    """
    if _work(queue):
        notify_worker(queue)


def _work(queue: str) -> bool:
    """Do one job as its queue demands. Return False if there was none."""
    if queue.startswith(KERNELBOT_PREFIX):
        from runners.kernelbot.worker import work_at_kernelbot

        return work_at_kernelbot(job_source(), queue, _post.name)
    return work_once(job_source(), queue, _post.name, import_string(settings.KERNELSCI_EVALUATE))


@cache
def job_source() -> OutsideSource:
    """Return the queue, from the class that the setting `KERNELSCI_JOB_SOURCE` names."""
    source: OutsideSource = import_string(settings.KERNELSCI_JOB_SOURCE)()
    return source


@celeryd_after_setup.connect
def _learn_post(sender: str, instance: Any, **_kwargs: Any) -> None:
    # Celery tells the worker's name and queues only by this signal.
    global _post
    _post = Post(sender, tuple(instance.app.amqp.queues.consume_from))


@worker_process_init.connect
def _take_post(**_kwargs: Any) -> None:
    """Start the heartbeat of a measuring process, and load what its first job would otherwise wait for."""
    target = target_of(_post.queues)
    if target is None:
        return
    threading.Thread(target=_check_in_for_ever, args=[target], name="check-in", daemon=True).start()
    # Importing now costs seconds that the first job would otherwise wait.
    import_string(settings.KERNELSCI_EVALUATE)


def target_of(queues: Sequence[str]) -> str | None:
    """Return the target that a worker on these queues measures, or None for one that measures nothing.

    One process has one device, so the first of several targets counts.
    """
    for queue in queues:
        for prefix in (BENCH_PREFIX, KERNELBOT_PREFIX):
            if queue.startswith(prefix):
                return queue.removeprefix(prefix)
    return None


def _check_in_for_ever(target: str) -> None:
    """Send the heartbeat of the runner's row. A queue that cannot be reached is tried again at the next beat."""
    card = card_of(_post.name, target, _post.queues, DATABASE)
    while True:
        try:
            job_source().check_in(card)
        except Exception:
            logger.warning("%s could not check in", card.name, exc_info=True)
        time.sleep(CHECK_IN_EVERY_S)
