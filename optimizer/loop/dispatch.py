"""From a kernel to a job on a queue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.db import transaction

from optimizer.models import Evaluation, EvaluationStatus, Job, Kernel, ProblemVersion, Run
from runners import wire
from runners.dispatch import DISPATCHERS
from runners.job import Baseline, Effort, JobSpec, Source

PRIORITY_OF_CONFIRMATIONS = -10
"""Lower numbers go first: a confirmation ends a run, and somebody waits for it."""


def dispatch(run: Run, kernel: Kernel, effort: Effort, *, first: bool) -> Evaluation:
    """Create the evaluation and its job, and ring after the commit. Call under the run's lock."""
    evaluation = Evaluation.objects.create(
        kernel=kernel, target=run.target, first_of=kernel if first else None, effort=effort.value
    )
    queue = DISPATCHERS[run.dispatcher].queue_for(run.target.key, effort)
    Job.objects.create(
        evaluation=evaluation,
        queue=queue,
        dispatcher=run.dispatcher,
        priority=PRIORITY_OF_CONFIRMATIONS if effort == Effort.CONFIRM else 0,
        spec=_stored_spec(run, kernel, evaluation),
    )
    ring_on_commit(run.dispatcher, queue)
    return evaluation


def ring_on_commit(dispatcher: str, queue: str) -> None:
    """Tell the queue's workers to look, once the job is there to be seen."""
    transaction.on_commit(lambda: DISPATCHERS[dispatcher].ring(queue))


def spec_of(job: Job) -> JobSpec:
    """The whole job as a runner takes it. The row leaves out the problem's files, which its version already holds."""
    return spec_from(job.spec)


def spec_from(stored: dict[str, Any]) -> JobSpec:
    """The same from the row's `spec` alone."""
    return wire.from_plain(JobSpec, {**stored, "problem": _bundle(stored["problem"])})


@lru_cache(maxsize=64)
def _bundle(version_id: int) -> dict[str, Any]:
    return dict(ProblemVersion.objects.values_list("bundle", flat=True).get(pk=version_id))


def _stored_spec(run: Run, kernel: Kernel, evaluation: Evaluation) -> dict[str, Any]:
    """A `JobSpec` as JSON with the problem version's id in place of its files."""
    spec = JobSpec(
        job_id=f"evaluation-{evaluation.pk}",
        problem=run.problem_version.as_bundle(),
        target=run.target.key,
        candidate=kernel.as_source(),
        effort=Effort(evaluation.effort),
        baseline=Baseline(run.baseline),
        parent=_parent_source(kernel),
        best_us=_best_us(run),
    )
    return {**wire.to_plain(spec), "problem": run.problem_version_id}


def _parent_source(kernel: Kernel) -> Source | None:
    """The base's text when it is known to work: there is no pairing with a kernel that fails."""
    base = kernel.parents.filter(child_links__rank=0, evaluation__status=EvaluationStatus.CORRECT).first()
    return base.as_source() if base else None


def _best_us(run: Run) -> dict[str, float]:
    """Case → µs of the run's best kernel, by which the harness abandons what is clearly slower."""
    evaluation = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first() if run.best_kernel_id else None
    result = evaluation.as_result() if evaluation else None
    return {c.name: c.candidate_us for c in result.cases if c.candidate_us is not None} if result else {}
