"""Advance a run by one step under its row lock.

The functions hold no state and may be called twice, or after a crash at any point. Whatever is announced or enqueued
is sent after commit. Calls to models and jobs happen elsewhere, never under this lock.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from enum import Enum

from django.db import transaction
from django.utils import timezone

from optimizer.calls.lifecycle import do_cancel_waiting_calls, open_calls
from optimizer.calls.record import recorded_in, replay_note
from optimizer.calls.tool_calls import do_cancel_tool_calls
from optimizer.events.payloads import RunNoted, RunStateChanged
from optimizer.events.record import record
from optimizer.loop import settling
from optimizer.loop.claims import measure_claims
from optimizer.loop.seeds import add_seeds, seeds_are_open
from optimizer.loop.shared_seeds import take_over_seeds
from optimizer.loop.steps import take_steps
from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, JobState, Run, RunState
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.budgets import budget_lines
from optimizer.queries.jobs import jobs_of
from optimizer.queries.memory import shortage_of
from optimizer.queries.runners import absence_of_runners
from optimizer.runs import best, budget
from optimizer.runs.ahead import do_cancel_ahead, open_batches
from optimizer.runs.ceiling import ceiling_reached
from optimizer.runs.history import history_of
from optimizer.runs.locking import try_lock_run
from optimizer.runs.strategies import settings_of, strategy_of
from optimizer.runs.transfer import note_transfer
from optimizer.search.base import Finish
from runners.dispatch.celery import BUILD_QUEUE
from runners.job import Effort
from runners.log_context import about

# Largest number of decisions in one call. A strategy that always has another step and never waits has a bug; the
# sweep continues with its run.
MAX_ROUNDS = 50
INFRA_FAILURES_IN_A_ROW = 3
# Time that a job may wait before the absence of runners is reported. Workers take a while to start.
ABSENT_AFTER = dt.timedelta(seconds=30)

logger = logging.getLogger(__name__)


class Outcome(Enum):
    """List the outcomes of a call to `advance`."""

    ADVANCED = "advanced"
    # Another process holds the run: enqueue it again.
    BUSY = "busy"


def advance(run_id: int) -> Outcome:
    """Take the next steps of the run; does nothing when there is nothing to do."""
    with about(run=run_id), transaction.atomic():
        run = try_lock_run(run_id)
        if run is None:
            return Outcome.BUSY
        _advance(run)
        run.advanced_at = timezone.now()
        run.save(update_fields=["advanced_at"])
    return Outcome.ADVANCED


def enter(run: Run, state: RunState, reason: str = "") -> None:
    """Change the run's state and record it. Call under the run's lock. Raises RunTransitionError."""
    if state == RunState.RUNNING:
        run.start()
    elif state == RunState.PAUSED:
        run.pause(reason)
    elif state == RunState.STOPPING:
        run.stop(reason)
    else:
        run.end(state, reason)
    record(run, RunStateChanged(state=run.state, reason=run.stop_reason))


def _advance(run: Run) -> None:
    if run.state == RunState.PENDING:
        _begin(run)
    if run.state == RunState.STOPPING:
        _stop_when_quiet(run)
    if run.state == RunState.RUNNING:
        _go_on(run)


def _begin(run: Run) -> None:
    enter(run, RunState.RUNNING)
    add_seeds(run)
    if not run.kernels.exists():
        record(run, RunNoted(text="This problem has no seed that the target can run.", tone="warn"))


def _stop_when_quiet(run: Run) -> None:
    if not _open_evaluations(run):
        best.update_best(run)
        enter(run, RunState.STOPPED)


def _go_on(run: Run) -> None:
    take_over_seeds(run)
    budget.warn(run)
    _note_absent_runner(run)
    if shortage := shortage_of(run):
        _give_up(run, shortage)
    elif _runners_keep_failing(run):
        enter(
            run,
            RunState.PAUSED,
            f"{INFRA_FAILURES_IN_A_ROW} evaluations in a row failed for reasons outside the kernel.",
        )
    elif (reason := run.finish_reason or budget.exhausted(run)) is not None:
        _wind_down(run, reason)
    elif not seeds_are_open(run) and budget.evaluations_left(run) != 0:
        _decide(run)


def _give_up(run: Run, reason: str) -> None:
    """End a run that no further evaluation could help, once nothing of it is open."""
    _cancel_questions(run)
    if not _is_open(run):
        enter(run, RunState.FAILED, reason)


def _cancel_questions(run: Run) -> None:
    """Cancel builds ahead, and the questions that no model is answering at this moment with their tools."""
    do_cancel_ahead(run)
    do_cancel_waiting_calls(run)
    do_cancel_tool_calls(run)


def _decide(run: Run) -> None:
    """Take steps until the strategy waits for something or is done. A strategy that raises has a bug and ends its
    run.
    """
    try:
        if reason := ceiling_reached(run, settings_of(run).stop_at_roofline):
            return _wind_down(run, reason)
        recorded = recorded_in(run)
        for _ in range(MAX_ROUNDS):
            history = replace(history_of(run), recorded=recorded.asks, recorded_tuning=recorded.tuning)
            if history.earlier:
                note_transfer(run, strategy_of(run).starts_from(history))
            steps = strategy_of(run).decide(history)
            if take_steps(run, steps):
                continue
            return _settle(run, next((step for step in steps if isinstance(step, Finish)), None))
    except Exception as error:
        logger.exception("run %s: strategy %s failed", run.pk, run.strategy)
        enter(run, RunState.FAILED, f"Strategy {run.strategy} failed: {type(error).__name__}: {error}")
    return None


def _settle(run: Run, finish: Finish | None) -> None:
    """End the run if the strategy says so, or if nothing is open for which it could wait."""
    if finish is not None:
        _wind_down(run, finish.reason)
    elif strategy_of(run).waits_outside:
        return
    elif not _is_open(run) and not open_batches(run) and budget.evaluations_left(run) != 0:
        enter(run, RunState.FAILED, f"Strategy {run.strategy} is stuck: nothing is open and it requests nothing.")


def _wind_down(run: Run, reason: str) -> None:
    """Wait for everything that is open, measure the top candidates again in cold processes, then finish the run."""
    _cancel_questions(run)
    if _is_open(run):
        return
    settings = settings_of(run)
    if _may_measure(run) and measure_claims(run, settings.settle):
        return
    if settings.confirm and _may_measure(run) and settling.settle(run, _contenders(run, settings.settle)):
        return
    settling.conclude(run)
    if note := replay_note(run):
        record(run, RunNoted(text=note, tone="warn"))
    # Asked now: what is left of the device time is an estimate, which later evaluations change.
    run.ended_by_budget = budget.exhausted(run) is not None
    run.save(update_fields=["ended_by_budget"])
    enter(run, RunState.FINISHED, reason)


def _contenders(run: Run, wanted: int) -> int:
    """Return how many leaders to measure again: those for which device time is left, at least one."""
    room = budget.device_room(run)
    return wanted if room is None else max(1, min(wanted, room.confirmations))


def _may_measure(run: Run) -> bool:
    """Return whether time and device minutes are left: a confirmation is not a counted evaluation but needs both."""
    spent = {line.kind for line in budget_lines(run) if line.percent >= 100}
    return not spent & {"minutes", "device_minutes"}


def _is_open(run: Run) -> bool:
    return _open_evaluations(run) or open_calls(run).exists()


def _open_evaluations(run: Run) -> bool:
    return Evaluation.objects.filter(kernel__run=run, state__in=OPEN_EVALUATION_STATES).exists()


def _note_absent_runner(run: Run) -> None:
    """Record once per start that no runner is available for the run's jobs, which wait and do not expire."""
    waiting = jobs_of(run).filter(state=JobState.QUEUED).exclude(queue=BUILD_QUEUE)
    if not waiting.filter(created_at__lt=timezone.now() - ABSENT_AFTER).exists():
        return
    text = absence_of_runners(run.target.key, run.dispatcher)
    said = run.events.filter(type=RunNoted.type, payload__text=text, created_at__gte=run.running_since)
    if text and not said.exists():
        record(run, RunNoted(text=text, tone="warn"))


def _runners_keep_failing(run: Run) -> bool:
    """Return True when the newest evaluations since the last start all ended for reasons outside their kernels."""
    ended = Evaluation.objects.filter(
        kernel__run=run, state=EvaluationState.DONE, finished_at__gte=run.running_since
    ).exclude(effort=Effort.BUILD.value)
    newest = list(ended.order_by("-finished_at", "-pk").values_list("status", flat=True)[:INFRA_FAILURES_IN_A_ROW])
    failed = [status for status in newest if status and not EvaluationStatus(status).judges_kernel]
    return len(failed) == INFRA_FAILURES_IN_A_ROW
