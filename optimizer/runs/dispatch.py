"""Turn a kernel into a job on a queue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.db import transaction

from optimizer.models import (
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    Job,
    Kernel,
    ProblemVersion,
    Run,
)
from optimizer.queue import Claimed, tied_to
from optimizer.runs.artefacts import known_artefacts
from optimizer.runs.strategies import settings_of
from optimizer.search.compiled import is_built_first
from runners import wire
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import CeleryDispatcher
from runners.job import Baseline, Effort, JobSpec, Objective
from runners.signing.envelope import EnvelopeError
from runners.signing.jobs import check_signed, signature_of
from runners.signing.keyring import Keyring

# Lower numbers go first. A confirmation ends a run, and somebody waits for it.
PRIORITY_OF_CONFIRMATIONS = -10
# The time of a remote device may be scarce. A confirmation takes as long as several first evaluations, for which agents
# wait, so a run's own confirmations go last there. This exceeds the priorities that campaigns give to runs.
AFTER_FIRST_EVALUATIONS = 1000


def begin_evaluation(run: Run, kernel: Kernel) -> Evaluation:
    """Create the kernel's first evaluation. Call under the run's lock.

    A kernel that is compiled for a device of another machine is built first, on any machine, since a compiler error
    should not cost a minute of that device. On this processor the build is part of the measuring job, whose device
    lock keeps compilers from disturbing the timing.
    """
    if not _is_built_first(run, kernel):
        return dispatch(run, kernel, Effort.FULL, first=True)
    evaluation = _evaluation(run, kernel, Effort.FULL, first=True)
    dispatch(run, kernel, Effort.BUILD, first=False)
    return evaluation


def hold_evaluation(run: Run, kernel: Kernel) -> Evaluation:
    """Create the evaluation of a kernel that is only reported: nothing is measured yet. Call under the run's lock."""
    return _evaluation(run, kernel, Effort.FULL, first=True, state=EvaluationState.REPORTED)


def begin_reported(run: Run, kernel: Kernel) -> Evaluation:
    """Let a kernel that was only reported be built and measured. Call under the run's lock."""
    evaluation = kernel.evaluation
    evaluation.mark_queued()
    if _is_built_first(run, kernel):
        dispatch(run, kernel, Effort.BUILD, first=False)
    else:
        queue_job(run, evaluation)
    return evaluation


def dispatch(
    run: Run,
    kernel: Kernel,
    effort: Effort,
    *,
    first: bool,
    opponent: Kernel | None = None,
    priority: int | None = None,
) -> Evaluation:
    """Create an evaluation with its job, and notify the runners after commit. Call under the run's lock.

    The kernel is timed in turns with `opponent`, or with its parent where no opponent is named.
    """
    evaluation = _evaluation(run, kernel, effort, first=first, opponent=opponent)
    queue_job(run, evaluation, priority=priority)
    return evaluation


def priority_in_search(run: Run) -> int:
    """Return the priority of a confirmation that the run itself asks for before it ends."""
    if run.dispatcher == CeleryDispatcher.name:
        return PRIORITY_OF_CONFIRMATIONS
    return run.priority + AFTER_FIRST_EVALUATIONS


def dispatch_again(
    run: Run, kernel: Kernel, purpose: EvaluationPurpose, baseline: Baseline, worker: str = ""
) -> Evaluation:
    """Time a kernel beside a baseline in cold processes for a purpose outside its run. Call under the run's lock.

    There is no opponent: what is asked is how the kernel compares with the baseline, here and now. With a `worker`,
    only that one takes the job while it is alive.
    """
    evaluation = Evaluation.objects.create(
        kernel=kernel, target=run.target, effort=Effort.CONFIRM.value, purpose=purpose
    )
    queue_job(run, evaluation, baseline, worker)
    return evaluation


def queue_job(
    run: Run,
    evaluation: Evaluation,
    baseline: Baseline | None = None,
    worker: str = "",
    priority: int | None = None,
) -> Job:
    """Create the job of an evaluation that has none, and notify the runners after commit.

    Static builds always go to this installation's own workers. Without a `baseline`, the run's is timed alongside.
    With a `worker`, only that one takes the job while it is alive. Without a `priority`, confirmations go first.
    """
    effort = Effort(evaluation.effort)
    if evaluation.purpose == EvaluationPurpose.SEARCH:
        _name_opponent(evaluation)
    # Compiling needs no device, so a queue outside, perhaps days long, is the wrong place for it.
    dispatcher = CeleryDispatcher.name if effort == Effort.BUILD else run.dispatcher
    usual = PRIORITY_OF_CONFIRMATIONS if effort == Effort.CONFIRM else run.priority
    job = Job(
        evaluation=evaluation,
        queue=DISPATCHERS[dispatcher].queue_for(run.target.key, effort),
        dispatcher=dispatcher,
        priority=usual if priority is None else priority,
        external=tied_to(worker),
    )
    return store_job(job, _spec(run, evaluation.kernel, evaluation, baseline), run.problem_version_id)


def store_job(job: Job, spec: JobSpec, version_id: int) -> Job:
    """Store a new job with its signed spec, and notify the runners after commit."""
    with_spec(job, spec, version_id).save()
    notify_on_commit(job.dispatcher, job.queue)
    return job


def with_spec(job: Job, spec: JobSpec, version_id: int) -> Job:
    """Give a job that is not stored yet its spec and the site's signature of it."""
    # The files of a problem can have megabytes, and every job of a run would repeat them.
    job.spec = {**wire.to_plain(spec), "problem": version_id}
    job.signature = signature_of(spec, Keyring())
    return job


def notify_on_commit(dispatcher: str, queue: str) -> None:
    """Notify the queue's workers after commit, when they can see the job."""
    transaction.on_commit(lambda: DISPATCHERS[dispatcher].notify(queue))


def spec_of(job: Job) -> JobSpec:
    """Return the complete job as a runner takes it.

    The row omits the problem's files, which its problem version holds already.
    """
    return spec_from(job.spec)


def spec_from(stored: dict[str, Any]) -> JobSpec:
    """Return the complete job from the row's `spec` alone."""
    return wire.from_plain(JobSpec, {**stored, "problem": _bundle(stored["problem"])})


def checked_spec(claimed: Claimed) -> JobSpec:
    """Return the complete job that was claimed. Raises EnvelopeError for one that this site has not signed as it is."""
    try:
        spec = spec_from(claimed.spec)
    except (wire.WireError, ProblemVersion.DoesNotExist, KeyError, TypeError, ValueError) as error:
        raise EnvelopeError(f"the job cannot be read: {error}") from error
    check_signed(spec, claimed.signature, Keyring())
    return spec


@lru_cache(maxsize=64)
def _bundle(version_id: int) -> dict[str, Any]:
    return dict(ProblemVersion.objects.values_list("bundle", flat=True).get(pk=version_id))


def _evaluation(
    run: Run,
    kernel: Kernel,
    effort: Effort,
    *,
    first: bool,
    opponent: Kernel | None = None,
    state: EvaluationState = EvaluationState.QUEUED,
) -> Evaluation:
    return Evaluation.objects.create(
        kernel=kernel,
        target=run.target,
        first_of=kernel if first else None,
        effort=effort.value,
        opponent=opponent,
        state=state,
    )


def _is_built_first(run: Run, kernel: Kernel) -> bool:
    return is_built_first(run.target.key, kernel.as_source())


def is_profiled(run: Run) -> bool:
    """Return whether the run's correct kernels are profiled on its target."""
    wanted = settings_of(run).profile
    return wanted == "always" or (wanted == "on_gpus" and run.target.key != "cpu")


def _spec(run: Run, kernel: Kernel, evaluation: Evaluation, baseline: Baseline | None = None) -> JobSpec:
    return JobSpec(
        job_id=f"evaluation-{evaluation.pk}",
        problem=run.problem_version.as_bundle(),
        target=run.target.key,
        candidate=kernel.as_source(),
        effort=Effort(evaluation.effort),
        baseline=baseline or Baseline(run.baseline),
        parent=evaluation.opponent.as_source() if evaluation.opponent else None,
        best_us=_best_us(run),
        known_artefacts=known_artefacts(run) if evaluation.first_of_id else {},
        profile=evaluation.effort == Effort.FULL and is_profiled(run),
        objective=Objective(run.objective),
    )


def _name_opponent(evaluation: Evaluation) -> None:
    """Choose the parent as the opponent of an evaluation that has none.

    A parent that is not known to work is left out, since timing cannot be paired with a kernel that fails.
    """
    if evaluation.opponent_id is not None:
        return
    links = evaluation.kernel.parent_links.filter(rank=0, parent__evaluation__status=EvaluationStatus.CORRECT)
    base = links.select_related("parent").first()
    if base is not None:
        evaluation.opponent = base.parent
        evaluation.save(update_fields=["opponent"])


def _best_us(run: Run) -> dict[str, float]:
    """Map each case to the time in µs of the run's best kernel, by which the harness abandons clearly slower ones."""
    evaluation = Evaluation.objects.filter(first_of_id=run.best_kernel_id).first() if run.best_kernel_id else None
    result = evaluation.as_result() if evaluation else None
    return {c.name: c.candidate_us for c in result.cases if c.candidate_us is not None} if result else {}
