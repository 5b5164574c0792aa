"""Say in one line what a run is doing or waiting for, and where a person can help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from optimizer.models import CallState, JobState, LlmCall, Run, RunState
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.models.job import TURN
from optimizer.queries.jobs import jobs_of, place_of
from optimizer.queries.outcomes import waiting_for_another_run
from optimizer.queries.runners import live_runners
from optimizer.search import STRATEGIES
from runners.dispatch import DISPATCHERS

Need = Literal["answer", "runner", "resume", "nothing"]


@dataclass(frozen=True)
class RunStatus:
    """Hold the line, its tone, and what a person can do about it; `call` is the oldest question in the inbox."""

    text: str
    tone: str = "muted"
    need: Need = "nothing"
    call: int | None = None


def status_of(run: Run) -> RunStatus:
    """Return what the run is doing, with at most eight short queries."""
    state = RunState(run.state)
    if state.is_terminal:
        return RunStatus(run.stop_reason or f"{state.label}.")
    if state == RunState.PAUSED:
        return RunStatus(run.stop_reason or "Paused.", "warn", "resume")
    if state == RunState.STOPPING:
        return RunStatus("Stopping: waiting for work in progress.")
    return (
        _waiting_for_people(run)
        or _waiting_for_seed(run)
        or _waiting_for_runner(run)
        or _in_queue(run)
        or _waiting_for_kernels(run)
        or RunStatus(_working(run), "live")
    )


def _working(run: Run) -> str:
    return "Finishing: the best kernels are measured again." if run.finish_reason else "Working."


def _waiting_for_people(run: Run) -> RunStatus | None:
    waiting = list(
        LlmCall.objects.filter(run=run, state=CallState.WAITING).order_by("pk").values_list("pk", "role")
    )
    if not waiting:
        return None
    (call, role), more = waiting[0], len(waiting) - 1
    prompts = f"{more + 1} prompts wait in the inbox, the oldest for" if more else "a prompt waits in the inbox for"
    return RunStatus(f"Waiting for an answer: {prompts} the role {role}.", "warn", "answer", call)


def _waiting_for_kernels(run: Run) -> RunStatus | None:
    """Say that the run waits for a submission from outside, unless one is being measured."""
    strategy = STRATEGIES.get(run.strategy)  # a run of an older version may have one that no longer exists
    if strategy is None or not strategy.waits_outside or run.finish_reason or run.state != RunState.RUNNING:
        return None
    if run.kernels.filter(evaluation__state__in=OPEN_EVALUATION_STATES).exists():
        return None
    return RunStatus("Waiting for the next submission.", "live")


def _waiting_for_seed(run: Run) -> RunStatus | None:
    """Say which run of the campaign measures a seed for this one as well."""
    measuring = waiting_for_another_run(run).values_list("copied_from__kernel__run", flat=True).first()
    return RunStatus(f"Waiting for run {measuring}, which measures a seed for both.", "live") if measuring else None


def _waiting_for_runner(run: Run) -> RunStatus | None:
    # A run of an older version may name a dispatcher that no longer exists.
    if run.dispatcher not in DISPATCHERS or live_runners(run.target.key, run.dispatcher).exists():
        return None
    return RunStatus(f"Waiting for a runner: none is measuring on {run.target.key}.", "warn", "runner")


def _in_queue(run: Run) -> RunStatus | None:
    """Return the place in the queue while nothing of the run is measured; None where none of its jobs waits."""
    if jobs_of(run).filter(state=JobState.RUNNING).exists():
        return None
    job = jobs_of(run).filter(state=JobState.QUEUED).order_by("priority", TURN).first()
    if job is None:
        return None
    place = place_of(job)
    wait = "" if place.wait_s is None else f" Expected wait: {_duration(place.wait_s)}."
    before = "Next in the queue." if not place.ahead else f"In the queue: {place.ahead} before it."
    return RunStatus(before + wait, "live")


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
