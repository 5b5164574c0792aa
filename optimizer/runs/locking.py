"""Lock the row of a run.

The holder may allocate event numbers, change counters and create what belongs to the run. The lock order everywhere
is: run, then job or call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from django.db import connection
from django.db.models.functions import Coalesce

from optimizer.models import Job, Run

# The number of the run that a job works for, whatever it belongs to.
RUN_OF_JOB = Coalesce("evaluation__kernel__run_id", "tool_call__run_id", "ahead_batch__run_id")

PATIENCE_S = 0.5
PAUSE_S = 0.02

Answer = TypeVar("Answer")


def lock_run(run_id: int) -> Run:
    """Lock the run's row and return it, waiting if necessary. Call inside a transaction. Raises Run.DoesNotExist."""
    return Run.objects.select_for_update(of=("self",)).get(pk=run_id)


def lock_run_of(job_id: int) -> Run:
    """Lock the run of a job and return it, as `lock_run` does."""
    owner = Job.objects.filter(pk=job_id).values(run=RUN_OF_JOB)[:1]
    return Run.objects.select_for_update(of=("self",)).get(pk=owner)


def try_lock_run(run_id: int, patience_s: float = PATIENCE_S) -> Run | None:
    """Lock the run's row, or return None when it is gone or locked for longer than `patience_s`."""
    free = Run.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=run_id)
    return patiently(free.first, patience_s)


def try_advisory_lock(function: str, name: str) -> bool:
    """Acquire or release PostgreSQL's advisory lock of a name, hashed to 64 bits."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])


def patiently(attempt: Callable[[], Answer], patience_s: float) -> Answer:
    """Return the first true answer of repeated attempts to lock something, or the last one after `patience_s`.

    This polls instead of blocking: a Celery worker must not hang behind a long transaction, and PostgreSQL's
    `lock_timeout` would abort the surrounding transaction.
    """
    deadline = time.monotonic() + patience_s
    while True:
        answer = attempt()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(PAUSE_S)
