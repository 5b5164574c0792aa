"""Check what must hold when everything has ended, whatever was done to the machine meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal

from django.db import transaction
from django.db.models import Sum

from optimizer.models import (
    CallState,
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    Job,
    JobState,
    LlmCall,
    Run,
    RunEvent,
    RunState,
)
from optimizer.queries.outcomes import UNCOUNTED
from optimizer.runs import best
from optimizer.runs.locking import lock_run
from tests.chaos.faults import MARK, accepted_wrongly

OPEN_CALLS = [state for state in CallState if not state.is_terminal]
OPEN_JOBS = [state for state in JobState if not state.is_terminal]


def jobs_ended() -> list[str]:
    """Check that no job waits or runs: none is lost."""
    return [str(job) for job in Job.objects.filter(state__in=OPEN_JOBS)]


def runs_ended() -> list[str]:
    """Check that no run is stuck, and that none failed."""
    fine = [RunState.FINISHED, RunState.STOPPED]
    return [f"{run.pk} {run.state}: {run.stop_reason}" for run in Run.objects.exclude(state__in=fine)]


def one_result_each() -> list[str]:
    """Check that every evaluation has one result, told once, and that its job agrees; cancelled ones have none."""
    told = Counter(
        RunEvent.objects.filter(type="evaluation.finished").values_list("payload__evaluation", flat=True)
    )
    return [
        f"evaluation {row.pk}: {row.state} {row.status}, told {told[row.pk]} times, job {row.job.state}"
        for row in Evaluation.objects.filter(job__isnull=False).select_related("job")
        if not _agrees(row, told[row.pk])
    ]


def _agrees(row: Evaluation, told: int) -> bool:
    ended = {JobState.DONE: EvaluationState.DONE, JobState.FAILED_INFRA: EvaluationState.DONE}
    expected = ended.get(JobState(row.job.state), EvaluationState.CANCELLED)
    has_result = bool(row.result) == (expected == EvaluationState.DONE)
    return row.state == expected and told == 1 and has_result


def none_left_open() -> list[str]:
    """Check that evaluations without a job of their own (equal kernels) have ended too."""
    return [str(row) for row in Evaluation.objects.filter(state__in=["queued", "running"])]


def no_stale_result() -> list[str]:
    """Check that no result under an old fence, and no second one, was stored."""
    stored = [str(row) for row in Evaluation.objects.filter(harness_version=MARK)]
    return accepted_wrongly + stored


def seq_gapless() -> list[str]:
    """Check that the event numbers of every run are 1 … last_seq."""
    return [
        str(run.pk)
        for run in Run.objects.all()
        if list(run.events.order_by("seq").values_list("seq", flat=True)) != list(range(1, run.last_seq + 1))
    ]


def budget_exact() -> list[str]:
    """Check that what a run has spent is what its rows add up to, and never above its limit."""
    return [
        f"run {run.pk}: {run.spent_evaluations}/{run.budget_evaluations} evaluations, {run.spent_usd} dollars"
        for run in Run.objects.all()
        if not _is_exact(run)
    ]


def _is_exact(run: Run) -> bool:
    counted = Evaluation.objects.filter(first_of__run=run, state=EvaluationState.DONE).exclude(
        kernel__author_kind__in=UNCOUNTED
    )
    twins = counted.filter(kernel__meta__has_key="twin_of").count()
    measured = counted.exclude(status=EvaluationStatus.INFRA_ERROR).count() - twins
    calls = LlmCall.objects.filter(run=run).aggregate(
        usd=Sum("cost_usd"), asked=Sum("prompt_tokens"), told=Sum("answer_tokens")
    )
    # What a campaign's settling times is no part of a run's budget.
    searched = Evaluation.objects.filter(kernel__run=run).exclude(purpose=EvaluationPurpose.SETTLING)
    device_s = searched.aggregate(sum=Sum("device_s"))["sum"] or 0.0
    tokens = (calls["asked"] or 0) + (calls["told"] or 0)
    return (
        run.spent_evaluations == measured <= (run.budget_evaluations or measured)
        and run.spent_usd == (calls["usd"] or Decimal(0))
        and run.spent_tokens == tokens
        and abs(run.spent_device_s - device_s) < 1e-6 * (1 + device_s)
    )


def best_is_best() -> list[str]:
    """Check that the stored leader is the one that the rows name."""
    wrong = []
    for run in Run.objects.all():
        with transaction.atomic():
            locked = lock_run(run.pk)
            best.update_best(locked)
            same = (locked.best_kernel_id, locked.last_seq) == (run.best_kernel_id, run.last_seq)
            transaction.set_rollback(True)
        wrong += [] if same else [f"run {run.pk}: {run.best_kernel_id}, and by the rows {locked.best_kernel_id}"]
    return wrong


def calls_ended() -> list[str]:
    """Check that no question to a model is left open, and that none was answered twice."""
    return [f"{call.run_id} {call}: {call.state}" for call in LlmCall.objects.filter(state__in=OPEN_CALLS)]


INVARIANTS: dict[str, Callable[[], list[str]]] = {
    "no job is lost": jobs_ended,
    "no run is stuck": runs_ended,
    "every evaluation has one result": one_result_each,
    "no evaluation is left open": none_left_open,
    "no stale or second result is stored": no_stale_result,
    "event numbers have no gap": seq_gapless,
    "budgets are exact": budget_exact,
    "the stored best is the best": best_is_best,
    "no question is left open": calls_ended,
}
