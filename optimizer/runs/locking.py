"""Lock the row of a run.

The holder may allocate event numbers, change counters and create what belongs to the run. The lock order everywhere
is: run, then job or call.
"""

from __future__ import annotations

import time

from django.db.models.functions import Coalesce

from optimizer.models import Job, Run

# The number of the run that a job works for, whatever it belongs to.
RUN_OF_JOB = Coalesce("evaluation__kernel__run_id", "tool_call__run_id", "ahead_batch__run_id")

PATIENCE_S = 0.5
PAUSE_S = 0.02


def lock_run(run_id: int) -> Run:
    """Lock the run's row and return it, waiting if necessary. Call inside a transaction. Raises Run.DoesNotExist."""
    return Run.objects.select_for_update(of=("self",)).get(pk=run_id)


def lock_run_of(job_id: int) -> Run:
    """Lock the run of a job and return it, as `lock_run` does."""
    owner = Job.objects.filter(pk=job_id).values(run=RUN_OF_JOB)[:1]
    return Run.objects.select_for_update(of=("self",)).get(pk=owner)


def try_lock_run(run_id: int, patience_s: float = PATIENCE_S) -> Run | None:
    """Lock the run's row, or return None when it is gone or locked for longer than `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        # Poll instead of blocking: a Celery worker must not hang behind a long transaction, and PostgreSQL's
        # `lock_timeout` would abort the surrounding transaction.
        run = Run.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=run_id).first()
        if run is not None or time.monotonic() > deadline:
            return run
        time.sleep(PAUSE_S)
