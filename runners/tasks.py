"""Celery's entry to the runners: the task that looks at a queue, and the worker's own heartbeat."""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from celery import shared_task
from celery.signals import celeryd_after_setup, worker_process_init
from django.conf import settings
from django.utils.module_loading import import_string

from runners.dispatch import DISPATCHERS
from runners.dispatch.base import JobSource, RunnerCard
from runners.dispatch.celery import BENCH_PREFIX, CeleryDispatcher
from runners.sandbox import probe
from runners.targets import TARGETS
from runners.worker import work_once

CHECK_IN_EVERY_S = 15.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Post:
    """Where this process serves: the worker's name and its queues. Set before the pool forks."""

    name: str
    queues: tuple[str, ...]


_post = Post(f"{socket.gethostname()}-{os.getpid()}", ())


@shared_task(name="runners.look", ignore_result=True)
def look(queue: str) -> None:
    """Do one job of the queue and ring for the next, so that a worker that is asked to end can do so between jobs.
    Many bells for one job do no harm: whoever comes too late finds nothing."""
    if work_once(job_source(), queue, _post.name, import_string(settings.KERNELSCI_EVALUATE)):
        DISPATCHERS[CeleryDispatcher.name].ring(queue)


@cache
def job_source() -> JobSource:
    """The queue, from the class that the setting `KERNELSCI_JOB_SOURCE` names."""
    source: JobSource = import_string(settings.KERNELSCI_JOB_SOURCE)()
    return source


@celeryd_after_setup.connect
def _learn_post(sender: str, instance: Any, **_kwargs: Any) -> None:
    global _post
    _post = Post(sender, tuple(instance.app.amqp.queues.consume_from))


@worker_process_init.connect
def _take_post(**_kwargs: Any) -> None:
    """A measuring process says that it is there, and loads what its first job would otherwise wait for."""
    target = next((q.removeprefix(BENCH_PREFIX) for q in _post.queues if q.startswith(BENCH_PREFIX)), None)
    if target is None:
        return
    threading.Thread(target=_check_in_for_ever, args=[target], name="check-in", daemon=True).start()
    import_string(settings.KERNELSCI_EVALUATE)


def _check_in_for_ever(target: str) -> None:
    """Heartbeat of the runner's row. A queue that cannot be reached is tried again at the next beat."""
    card = _card(target)
    while True:
        try:
            job_source().check_in(card)
        except Exception:
            logger.warning("%s could not check in", card.name, exc_info=True)
        time.sleep(CHECK_IN_EVERY_S)


def _card(target: str) -> RunnerCard:
    known = TARGETS.get(target)
    return RunnerCard(
        name=_post.name,
        target=target,
        queues=_post.queues,
        device=known.title if known else target,
        sandbox=probe().value,
        facts={
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    )
