"""The run's row lock: whoever holds it may hand out event numbers, change counters and create what belongs to the
run. Lock order everywhere: run, then job or call."""

from __future__ import annotations

import time

from optimizer.models import Run

PATIENCE_S = 0.5
PAUSE_S = 0.02


def lock_run(run_id: int) -> Run:
    """The run under its row lock, waiting for it. Call inside a transaction. Raises Run.DoesNotExist."""
    return Run.objects.select_for_update(of=("self",)).get(pk=run_id)


def lock_run_of(job_id: int) -> Run:
    """The run of a job under its row lock, as `lock_run`."""
    return Run.objects.select_for_update(of=("self",)).get(kernels__evaluations__job=job_id)


def try_lock_run(run_id: int, patience_s: float = PATIENCE_S) -> Run | None:
    """The run under its row lock, or None when it is gone or somebody holds it longer than `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        run = Run.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=run_id).first()
        if run is not None or time.monotonic() > deadline:
            return run
        time.sleep(PAUSE_S)
