"""Provide an evaluation that only sleeps, for KERNELSCI_EVALUATE: what is measured then is the queue, not the
processor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from runners.job import JobResult, JobSpec, Status

SLEEP_S = float(os.environ.get("KERNELSCI_SLEEP_S", "2"))
TICK_S = 0.05


def evaluate(
    spec: JobSpec,
    *,
    cancel: Callable[[], bool] | None = None,
    on_progress: Callable[[str, str], None] | None = None,
) -> JobResult:
    """Return `incorrect` after SLEEP_S, or as soon as `cancel` says so: nothing follows from it."""
    until = time.monotonic() + SLEEP_S
    while time.monotonic() < until and not (cancel is not None and cancel()):
        time.sleep(TICK_S)
    return JobResult(job_id=spec.job_id, status=Status.INCORRECT, reasons=["slept"])
