"""Show the workers of a run and the end of their logs, with two queries however long the logs are."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet

from optimizer.models import Job, JobLog, JobState, Run
from optimizer.queries.jobs import jobs_of
from optimizer.text.hostile_text import plain_log

SHOWN = 12
TAIL_LINES = 8
TAIL_CHARS = 4_000


@dataclass(frozen=True)
class WorkerCard:
    """Hold one worker with its job, which is about kernel `number` or works for the question `call`.

    `attempt` counts from 1; `tail` are the last lines of its log.
    """

    worker: str
    number: int | None
    call: int | None
    title: str
    effort: str
    stage: str
    attempt: int
    since: dt.datetime | None
    tail: str


def workers_of(run: Run) -> list[WorkerCard]:
    """Return the workers that hold a job of the run, longest running first."""
    jobs = list(_held(run)[:SHOWN])
    tails = _tails([job.pk for job in jobs])
    return [_card(job, tails.get(job.pk, "")) for job in jobs]


def _held(run: Run) -> QuerySet[Job]:
    held = jobs_of(run).filter(state=JobState.RUNNING)
    heavy = (
        "spec",
        "evaluation__result",
        "tool_call__source",
        "tool_call__arguments",
        "ahead_batch__variants",
        "ahead_batch__builds",
        *(f"evaluation__kernel__{name}" for name in ("source", "report", "meta")),
    )
    return (
        held.select_related("evaluation__kernel", "tool_call__turn__call", "ahead_batch")
        .defer(*heavy)
        .order_by("started_at", "pk")
    )


def _tails(job_ids: list[int]) -> dict[int, str]:
    """Return the last chunk of each job's log under its present fencing token."""
    chunks = JobLog.objects.filter(job__in=job_ids, fence=F("job__fence")).order_by("job", "-seq").distinct("job")
    return dict(chunks.values_list("job_id", "text"))


def _card(job: Job, log: str) -> WorkerCard:
    lines = plain_log(log[-TAIL_CHARS:]).rstrip().splitlines()[-TAIL_LINES:]
    return WorkerCard(
        **_subject(job),
        worker=job.worker,
        attempt=job.attempts,
        since=job.started_at,
        tail="\n".join(lines),
    )


def _subject(job: Job) -> dict[str, Any]:
    """Return what the job is about, for its card."""
    evaluation = job.evaluation
    if evaluation is None and hasattr(job, "ahead_batch"):
        return {"number": None, "call": None, "title": "Configurations compiled ahead", "effort": "build",
                "stage": "building"}  # fmt: skip
    if evaluation is None:
        tool, call = job.tool_call, job.tool_call.turn.call
        return {"number": None, "call": call.pk, "title": f"{call.role} {call.key}", "effort": tool.name,
                "stage": tool.stage or "starting"}  # fmt: skip
    return {"number": evaluation.kernel.number, "call": None, "title": evaluation.kernel.title,
            "effort": evaluation.effort, "stage": evaluation.stage or "starting"}  # fmt: skip
