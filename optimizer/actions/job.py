"""Apply the changes of a queued job to its kernel and run.

Every function is one transaction that locks the run first and the job second. The fixed order prevents deadlocks, and
the single transaction prevents half-recorded results.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace

from django.db import transaction
from django.db.models import Q

from optimizer import queue
from optimizer.actions.runner import do_note_noise_floor
from optimizer.calls.tool_calls import do_cancel_tool_call, do_finish_tool_call
from optimizer.enqueue import enqueue_run
from optimizer.events.payloads import EvaluationStarted, HypothesisMeasured
from optimizer.events.record import record
from optimizer.models import (
    AheadBatch,
    AuthorKind,
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    Job,
    JobState,
    Run,
    ToolCall,
)
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.outcomes import UNCOUNTED
from optimizer.runs import best, budget
from optimizer.runs.ahead import do_cancel_ahead, do_finish_ahead
from optimizer.runs.artefacts import is_sound, original_of
from optimizer.runs.dispatch import queue_job
from optimizer.runs.evaluation import do_copy_outcome, do_share_outcome, do_store_result, finished
from optimizer.runs.kernels import settle_duplicates
from optimizer.runs.locking import lock_run, lock_run_of
from optimizer.runs.turns import order_waiting
from runners.job import Effort, Failure, JobResult, Status
from runners.job_source import Receipt

# Every claim reads these columns. Source and spec are wide, and the claim has read the spec already.
_TO_START = (
    "worker", "attempts", "evaluation__effort", "evaluation__first_of_id", "evaluation__kernel__number",
    "evaluation__kernel__run__team_id", "evaluation__kernel__run__is_private",
)  # fmt: skip
# How long before a job's first attempt a verdict on another kernel still says that its runner works.
JUDGED_WITHIN = dt.timedelta(hours=1)
UNKNOWN_ORIGINAL = "The runner names an evaluation of the same binary that it was not told of."

logger = logging.getLogger(__name__)


def do_start_job(job_id: int, fence: int) -> bool:
    """Record that a worker has started. Return False when that claim is no longer current."""
    with transaction.atomic():
        locked = Job.objects.select_for_update(of=("evaluation__kernel__run",))
        # The condition makes inner joins of the joins to the evaluation: only those can be locked.
        mine = locked.select_related("evaluation__kernel__run").filter(pk=job_id, evaluation__kernel__gt=0)
        job = mine.only(*_TO_START).first()
        if job is None:
            return _start_without_evaluation(job_id, fence)
        evaluation = _evaluation_of(job)
        if not evaluation.mark_started(fence):
            return False
        record(evaluation.kernel.run, _started(job, evaluation))
    return True


def _start_without_evaluation(job_id: int, fence: int) -> bool:
    """Note the start of a tool call. A batch that is compiled ahead has nothing to note."""
    call = ToolCall.objects.filter(job=job_id).first()
    return call.mark_started(fence) if call else AheadBatch.objects.filter(job=job_id, job__fence=fence).exists()


def do_finish_job(job_id: int, fence: int, result: JobResult) -> Receipt:
    """Record a result once, under the current fencing token.

    An infrastructure error is not the kernel's fault, so it puts the job back into the queue.
    """
    # Another worker may succeed, so nothing is recorded for the kernel yet.
    if result.status == Status.INFRA_ERROR:
        return _do_hand_back(job_id, fence, result)
    with transaction.atomic():
        run, job = _locked(job_id)
        # A runner may name only evaluations that were in the job's list; another id would let it copy any result.
        if not is_sound(job, result):
            result = replace(result, duplicate_of=None, status=Status.INFRA_ERROR, reasons=[UNKNOWN_ORIGINAL])
        if queue.finish(job_id, fence):
            _store(run, job, result)
            do_note_noise_floor(job.worker, result.noise_floor)
            return Receipt.RECORDED
    # A runner that did not receive our answer sends the same result again and must not be told that it failed.
    return Receipt.REPEATED if queue.was_finished_by(job_id, fence) else Receipt.REFUSED


def do_fail_job(job_id: int, fence: int, reason: str, *, reported: bool = False) -> bool:
    """End a job whose attempts are used up. Its evaluation is an infrastructure error and the kernel stays unjudged.

    If the harness `reported` the breakdown in a search and judges other kernels there, this one is to blame: it has
    crashed.
    """
    with transaction.atomic():
        run, job = _locked(job_id)
        if not queue.fail(job_id, fence, reason):
            return False
        _store(run, job, _crash(job, reason) if reported and _judges_others(job) else _infra_error(job, reason))
    return True


def do_refuse_job(job_id: int, fence: int, reason: str, *, elsewhere: bool = False) -> bool:
    """End a claimed job that must not be carried out, such as one that nobody trusted has signed.

    Its evaluation is an infrastructure error: whoever altered the job is not the author of the kernel. A job that might
    be trusted `elsewhere` goes back to the queue while it has attempts left.
    """
    logger.error("job %s is refused: %s", job_id, reason)
    if elsewhere and queue.release(job_id, fence, f"refused: {reason}"):
        return True
    with transaction.atomic():
        run, job = _locked(job_id)
        if not queue.refuse(job_id, fence, f"refused: {reason}"):
            return False
        _store(run, job, _infra_error(job, f"refused: {reason}"))
    return True


def _infra_error(job: Job, reason: str) -> JobResult:
    return JobResult(str(job.pk), Status.INFRA_ERROR, reasons=[reason])


def _crash(job: Job, reason: str) -> JobResult:
    where = "on a runner that judges other kernels of the problem"
    said = f"{queue.MAX_ATTEMPTS} attempts in a row broke down, {where}: {reason}"
    return JobResult(str(job.pk), Status.CRASHED, reasons=[said], failures=[Failure("candidate", "", said)])


def _judges_others(job: Job) -> bool:
    """Return whether the worker of a job's last attempt has judged another source about the time of its attempts.

    Only sources for the same problem count: a reference that breaks the harness says nothing against its kernels.
    Timings outside a search blame nobody: their kernels were correct before, and others are always judged beside them.
    """
    if job.evaluation is None or job.started_at is None or job.evaluation.effort == Effort.BUILD:
        return False
    if job.evaluation.purpose != EvaluationPurpose.SEARCH:
        return False
    others = Evaluation.objects.filter(job__worker=job.worker, finished_at__gte=job.started_at - JUDGED_WITHIN)
    others = others.exclude(effort=Effort.BUILD.value)
    kernel = job.evaluation.kernel
    others = others.filter(kernel__run__problem_version=kernel.run.problem_version_id)
    others = others.exclude(kernel__content_hash=kernel.content_hash)
    judged = [status.value for status in EvaluationStatus if status.judges_kernel]
    return others.filter(status__in=judged).exists()


def do_let_go(job_id: int, fence: int) -> None:
    """Record that a worker has stopped. Cancels the job if that was requested, and changes nothing otherwise."""
    with transaction.atomic():
        run, job = _locked(job_id)
        if queue.close_cancelled(job_id, fence):
            _cancel(run, job)
            enqueue_run(run.pk)


def do_cancel_jobs(run: Run, *, running: bool = True) -> None:
    """Cancel the waiting jobs and, with `running`, ask the workers to stop. Call under the run's lock."""
    jobs = Job.objects.filter(evaluation__kernel__run=run)
    queue.cancel(jobs if running else jobs.filter(state=JobState.QUEUED))
    cancelled = Evaluation.objects.filter(
        Q(job__state=JobState.CANCELLED) | Q(job=None),
        kernel__run=run,
        state__in=OPEN_EVALUATION_STATES,
        # A duplicate has no job of its own: it ends together with the evaluation that it waits for.
    ).exclude(kernel__meta__has_key="twin_of")
    for evaluation in cancelled.select_related("kernel"):
        _cancel_evaluation(run, evaluation)


def do_cancel_timing(evaluation: Evaluation) -> None:
    """Cancel one open evaluation that is not part of its run's search; others of the run go on."""
    with transaction.atomic():
        run = lock_run(evaluation.kernel.run_id)
        queue.cancel(Job.objects.filter(evaluation=evaluation))
        current = Evaluation.objects.select_related("kernel", "job").get(pk=evaluation.pk)
        # A job that a worker holds ends when the worker lets go.
        if current.job.state == JobState.CANCELLED and not EvaluationState(current.state).is_terminal:
            _cancel_evaluation(run, current)


def _do_hand_back(job_id: int, fence: int, result: JobResult) -> Receipt:
    reason = "; ".join(result.reasons) or "the harness failed"
    if queue.release(job_id, fence, reason):
        return Receipt.RECORDED
    # A cancelled job ends here, whenever it was cancelled.
    do_let_go(job_id, fence)
    return Receipt.RECORDED if do_fail_job(job_id, fence, reason, reported=True) else Receipt.REFUSED


def _locked(job_id: int) -> tuple[Run, Job]:
    """Lock the run of the job, then read the job in its present state."""
    run = lock_run_of(job_id)
    job = Job.objects.select_related("evaluation__kernel__hypothesis", "tool_call__turn__call", "ahead_batch").get(
        pk=job_id
    )
    return run, job


def _evaluation_of(job: Job) -> Evaluation:
    """Return the evaluation to which a job belongs. Raises ValueError for another job."""
    if job.evaluation is None:
        raise ValueError(f"{job} belongs to no evaluation")
    return job.evaluation


def _store(run: Run, job: Job, result: JobResult) -> None:
    """Apply everything that follows from a result, in the transaction that closes its job."""
    if job.evaluation is not None:
        _store_evaluation(run, job.evaluation, result)
    elif hasattr(job, "ahead_batch"):
        do_finish_ahead(run, job.ahead_batch, result)
    else:
        do_finish_tool_call(run, job.tool_call, result)


def _cancel(run: Run, job: Job) -> None:
    if job.evaluation is not None:
        _cancel_evaluation(run, job.evaluation)
    elif hasattr(job, "ahead_batch"):
        do_cancel_ahead(run)
    else:
        do_cancel_tool_call(run, job.tool_call)


def _store_evaluation(run: Run, evaluation: Evaluation, result: JobResult) -> None:
    original = original_of(result)
    if original is None:
        do_store_result(evaluation, result)
    else:
        do_share_outcome(evaluation, original, result)
    _conclude(run, evaluation)
    if evaluation.effort == Effort.BUILD:
        _follow_build(run, evaluation)
    elif evaluation.effort == Effort.CONFIRM and evaluation.purpose == EvaluationPurpose.SEARCH:
        best.judge_confirmation(run, evaluation)
    # After the confirmation was judged: a refuted kernel must not lead.
    best.update_best(run)
    order_waiting(run)
    budget.warn(run)
    enqueue_run(run.pk)


def _conclude(run: Run, evaluation: Evaluation) -> None:
    """Count an evaluation that has its outcome, announce it, and pass the outcome on to its duplicates."""
    _spend(run, evaluation)
    record(run, finished(run, evaluation))
    if evaluation.first_of_id:
        settle_duplicates(run, evaluation)
        _wake_waiting_runs(evaluation)
        _measure_hypothesis(run, evaluation)


def _follow_build(run: Run, build: Evaluation) -> None:
    """Continue after a static build: measure the kernel, or end it with the compiler's output.

    A failing build machine is no reason not to measure, since the measuring runner builds again.
    """
    waiting = Evaluation.objects.filter(first_of=build.kernel, state=EvaluationState.QUEUED, job=None).first()
    if waiting is None:
        return
    # A build machine without a working compiler says nothing about the kernel.
    if build.status in {EvaluationStatus.CORRECT, EvaluationStatus.INFRA_ERROR}:
        queue_job(run, waiting)
    else:
        do_copy_outcome(waiting, build)
        _conclude(run, waiting)


def _spend(run: Run, evaluation: Evaluation) -> None:
    """Add an evaluation to the run's spending.

    Seeds and confirmations do not count as evaluations; their device time does. An ending that was not the kernel's own
    (a failed machine, too little device memory, a parent that failed) costs the run nothing, and neither do timings for
    a campaign's settling or the regression watch.
    """
    if not evaluation.judges_kernel or evaluation.purpose != EvaluationPurpose.SEARCH:
        return
    # Budgets compare strategies, so they count only what a strategy has asked for.
    searched = evaluation.kernel.author_kind not in UNCOUNTED
    counts = evaluation.first_of_id and searched
    run.spent_evaluations += 1 if counts else 0
    run.spent_device_s += evaluation.device_s
    run.save(update_fields=["spent_evaluations", "spent_device_s"])


def _measure_hypothesis(run: Run, evaluation: Evaluation) -> None:
    """Store the measured gain beside the predicted one, in per cent of speed against the parent, from paired timing.

    The gain is zero where the build produced the parent's own binary.
    """
    hypothesis = evaluation.kernel.hypothesis
    speedup = 1.0 if _is_its_parent(evaluation) else evaluation.parent_speedup
    if hypothesis is None or speedup is None or evaluation.status != EvaluationStatus.CORRECT:
        return
    # In per cent of speed, the unit in which the hypothesis predicted it.
    hypothesis.measured_gain = 100.0 * (speedup - 1.0)
    hypothesis.save(update_fields=["measured_gain"])
    record(run, HypothesisMeasured(hypothesis=hypothesis.pk, gain=hypothesis.measured_gain))


def _is_its_parent(evaluation: Evaluation) -> bool:
    original = evaluation.result.get("duplicate_of")
    base = evaluation.kernel.parent_links.filter(rank=0)
    return original is not None and base.filter(parent__evaluation=int(original)).exists()


def _cancel_evaluation(run: Run, evaluation: Evaluation) -> None:
    evaluation.mark_cancelled()
    record(run, finished(run, evaluation))
    settle_duplicates(run, evaluation)
    _wake_waiting_runs(evaluation)


def _wake_waiting_runs(evaluation: Evaluation) -> None:
    """Enqueue the other runs of a campaign that wait for this measurement, if it is that of a seed."""
    if evaluation.kernel.author_kind != AuthorKind.SEED:
        return
    for run_id in evaluation.copies.filter(state=EvaluationState.QUEUED).values_list("kernel__run", flat=True):
        enqueue_run(run_id)


def _started(job: Job, evaluation: Evaluation) -> EvaluationStarted:
    return EvaluationStarted(
        number=evaluation.kernel.number,
        evaluation=evaluation.pk,
        effort=evaluation.effort,
        first=evaluation.first_of_id is not None,
        worker=job.worker,
        attempt=job.attempts,
    )
