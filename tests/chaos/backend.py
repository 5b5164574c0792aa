"""An evaluation that costs no processor: it sleeps, then answers as a harness would. What it answers follows from
the job alone, so that a job done twice is seen to be the same. Workers find it through KERNELSCI_EVALUATE."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace

from runners.job import Effort, JobResult, JobSpec, StageResult, Status
from tests.factories import failed_result, fake_evaluate

REAL_PROBLEM = os.environ.get("KERNELSCI_CHAOS_REAL", "")
"""Jobs of this problem are compiled and timed by the real harness."""
SLEEP_S = (0.1, 1.1)
TROUBLE = float(os.environ.get("KERNELSCI_CHAOS_TROUBLE", "0.02"))
"""Share of attempts in which the harness itself fails; such a job is claimed again."""


def evaluate(
    spec: JobSpec,
    *,
    cancel: Callable[[], bool] | None = None,
    on_progress: Callable[[str, str], None] | None = None,
) -> JobResult:
    """Return a result after a short sleep; one kernel in twelve crashes."""
    if spec.problem.name == REAL_PROBLEM:
        from runners.harness import evaluate as measure

        return measure(replace(spec, effort=Effort.QUICK), cancel=cancel, on_progress=on_progress)
    if random.random() < TROUBLE:
        raise RuntimeError("the device has gone away")
    fate = random.Random(spec.candidate.content_hash)
    seconds = fate.uniform(*SLEEP_S)
    _sleep(seconds, cancel)
    if fate.random() < 1 / 12 and spec.effort == Effort.FULL:
        result = failed_result(spec, Status.CRASHED, "signal SIGSEGV")
    else:
        result = fake_evaluate(spec, cancel=cancel, on_progress=on_progress)
    # The device was held for as long as we slept.
    return replace(result, stages=[StageResult("timing", seconds)])


def _sleep(seconds: float, cancel: Callable[[], bool] | None) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not (cancel is not None and cancel()):
        time.sleep(0.05)
