"""Evaluate kernels: oracle, candidate and referee run in processes of their own. `evaluate` is the only entry point."""

from __future__ import annotations

from collections.abc import Callable

from runners.job import JobResult, JobSpec


def evaluate(
    spec: JobSpec,
    *,
    cancel: Callable[[], bool] | None = None,
    on_progress: Callable[[str, str], None] | None = None,
) -> JobResult:
    """Carry out a job, to a verdict or a failure that says what failed. Never raises for what a kernel does.

    `cancel` is asked a few times a second; `on_progress(stage, text)` is told what is going on.
    """
    # Imported late, so that importing this function costs nothing.
    from runners.harness.evaluation import Evaluation

    return Evaluation(spec, cancel, on_progress).result()
