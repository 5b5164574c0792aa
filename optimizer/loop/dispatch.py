"""From a kernel to a job on a queue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.db import transaction

from optimizer.loop.artefacts import known_artefacts
from optimizer.loop.strategies import settings_of
from optimizer.models import Evaluation, EvaluationStatus, Job, Kernel, ProblemVersion, Run
from runners import wire
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import CeleryDispatcher
from runners.job import Baseline, Effort, JobSpec, Language, Objective

PRIORITY_OF_CONFIRMATIONS = -10
"""Lower numbers go first: a confirmation ends a run, and somebody waits for it."""
DEVICE_LANGUAGES = frozenset({Language.HIP, Language.CUDA, Language.TRITON})
"""Languages that compile for a device that need not be there."""


def begin_evaluation(run: Run, kernel: Kernel) -> Evaluation:
    """The kernel's first evaluation. What is compiled for another machine's device is built first, on any machine:
    a compiler's complaint should not cost a minute of that device. On this processor the build belongs to the
    measurement, whose device lock keeps compilers from disturbing a clock. Call under the run's lock."""
    if not _is_built_first(run, kernel):
        return dispatch(run, kernel, Effort.FULL, first=True)
    evaluation = _evaluation(run, kernel, Effort.FULL, first=True)
    dispatch(run, kernel, Effort.BUILD, first=False)
    return evaluation


def dispatch(
    run: Run, kernel: Kernel, effort: Effort, *, first: bool, opponent: Kernel | None = None
) -> Evaluation:
    """Create an evaluation with its job, and ring after the commit. Call under the run's lock.

    The kernel is timed in turns with `opponent`, or with its parent where none is named.
    """
    evaluation = _evaluation(run, kernel, effort, first=first, opponent=opponent)
    queue_job(run, evaluation)
    return evaluation


def queue_job(run: Run, evaluation: Evaluation) -> Job:
    """Create the job of an evaluation that has none, and ring after the commit. Static builds always go to this
    installation's own workers."""
    effort = Effort(evaluation.effort)
    _name_opponent(evaluation)
    dispatcher = CeleryDispatcher.name if effort == Effort.BUILD else run.dispatcher
    job = Job.objects.create(
        evaluation=evaluation,
        queue=DISPATCHERS[dispatcher].queue_for(run.target.key, effort),
        dispatcher=dispatcher,
        priority=PRIORITY_OF_CONFIRMATIONS if effort == Effort.CONFIRM else 0,
        spec=_stored_spec(run, evaluation.kernel, evaluation),
    )
    ring_on_commit(dispatcher, job.queue)
    return job


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


def _evaluation(
    run: Run, kernel: Kernel, effort: Effort, *, first: bool, opponent: Kernel | None = None
) -> Evaluation:
    return Evaluation.objects.create(
        kernel=kernel,
        target=run.target,
        first_of=kernel if first else None,
        effort=effort.value,
        opponent=opponent,
    )


def _is_built_first(run: Run, kernel: Kernel) -> bool:
    return run.target.key != "cpu" and Language(kernel.language) in DEVICE_LANGUAGES


def _is_profiled(run: Run) -> bool:
    wanted = settings_of(run).profile
    return wanted == "always" or (wanted == "on_gpus" and run.target.key != "cpu")


def _stored_spec(run: Run, kernel: Kernel, evaluation: Evaluation) -> dict[str, Any]:
    """A `JobSpec` as JSON with the problem version's id in place of its files."""
    spec = JobSpec(
        job_id=f"evaluation-{evaluation.pk}",
        problem=run.problem_version.as_bundle(),
        target=run.target.key,
        candidate=kernel.as_source(),
        effort=Effort(evaluation.effort),
        baseline=Baseline(run.baseline),
        parent=evaluation.opponent.as_source() if evaluation.opponent else None,
        best_us=_best_us(run),
        known_artefacts=known_artefacts(run) if evaluation.first_of_id else {},
        profile=evaluation.effort == Effort.FULL and _is_profiled(run),
        objective=Objective(run.objective),
    )
    return {**wire.to_plain(spec), "problem": run.problem_version_id}


def _name_opponent(evaluation: Evaluation) -> None:
    """Let the kernel be timed in turns with its parent where nobody else was named. A parent that is not known to work
    is left out: there is no pairing with a kernel that fails."""
    if evaluation.opponent_id is not None:
        return
    links = evaluation.kernel.parent_links.filter(rank=0, parent__evaluation__status=EvaluationStatus.CORRECT)
    base = links.select_related("parent").first()
    if base is not None:
        evaluation.opponent = base.parent
        evaluation.save(update_fields=["opponent"])


def _best_us(run: Run) -> dict[str, float]:
    """Case → µs of the run's best kernel, by which the harness abandons what is clearly slower."""
    evaluation = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first() if run.best_kernel_id else None
    result = evaluation.as_result() if evaluation else None
    return {c.name: c.candidate_us for c in result.cases if c.candidate_us is not None} if result else {}
