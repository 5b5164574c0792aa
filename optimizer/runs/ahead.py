"""Compile variants of a kernel ahead of their measurement: request a batch, store what came back, cancel it.

All of it happens under the run's lock. A batch costs neither evaluations nor device time.
"""

from __future__ import annotations

from optimizer import queue
from optimizer.enqueue import enqueue_run
from optimizer.events.payloads import AheadFinished, RunNoted
from optimizer.events.record import record
from optimizer.models import AheadBatch, Job, Run
from optimizer.models.choices import OPEN_JOB_STATES
from optimizer.queries.compiled_ahead import CANCELLED
from optimizer.runs.dispatch import store_job
from optimizer.search.compiled import CompileAhead
from optimizer.text.storable import storable, storable_text
from runners import wire
from runners.dispatch.celery import BUILD_QUEUE, CeleryDispatcher
from runners.job import Effort, JobResult, JobSpec, Limits, Status

# A batch that takes longer is given up; a variant has as long as every other build.
BATCH_S = 1800.0


def request_ahead(run: Run, step: CompileAhead) -> bool:
    """Queue a batch. Return False where the run knows its key already, or no longer its kernel."""
    basis = run.kernels.filter(key=step.basis_key).first()
    if basis is None or run.ahead_batches.filter(key=step.key).exists():
        return False
    batch = AheadBatch.objects.create(
        run=run, basis=basis, key=step.key, variants=[wire.to_plain(variant) for variant in step.variants]
    )
    spec = JobSpec(
        job_id=f"ahead-{batch.pk}",
        problem=run.problem_version.as_bundle(),
        target=run.target.key,
        candidate=basis.as_source(),
        effort=Effort.BUILD,
        limits=Limits(total_s=BATCH_S),
        ahead=step.variants,
    )
    # Compiling needs no device, so it never waits in a queue outside.
    job = Job(queue=BUILD_QUEUE, dispatcher=CeleryDispatcher.name, priority=run.priority)
    batch.job = store_job(job, spec, run.problem_version_id)
    batch.save(update_fields=["job"])
    return True


def do_finish_ahead(run: Run, batch: AheadBatch, result: JobResult) -> None:
    """Store what a runner compiled, in the transaction that closes the job."""
    error = "" if result.status == Status.CORRECT else "; ".join(result.reasons) or result.status.value
    if not error and len(result.ahead) != len(batch.variants):
        error = "the runner did not answer for every variant"
    builds = [] if error else storable([wire.to_plain(build) for build in result.ahead])
    batch.mark_finished(builds, storable_text(error)[:1000])
    if error:
        record(run, RunNoted(text=f"Nothing is compiled ahead: {batch.error[:300]}", tone="warn"))
    else:
        record(run, AheadFinished(compiled=len(builds), refused=sum(bool(build.refused) for build in result.ahead)))
    enqueue_run(run.pk)


def do_cancel_ahead(run: Run) -> None:
    """Cancel the run's open batches and ask their runners to stop."""
    for batch in open_batches(run):
        queue.cancel(Job.objects.filter(ahead_batch=batch, state__in=OPEN_JOB_STATES))
        batch.mark_finished([], CANCELLED)


def open_batches(run: Run) -> list[AheadBatch]:
    """Return the batches that are being compiled."""
    return list(run.ahead_batches.filter(finished_at=None))
