"""Show the workers of a run and the end of their logs, with two queries however long the logs are."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db.models import F, QuerySet

from optimizer.models import Job, JobLog, JobState, Run
from optimizer.text.hostile_text import plain_log

SHOWN = 12
TAIL_LINES = 8
TAIL_CHARS = 4_000


@dataclass(frozen=True)
class WorkerCard:
    """Hold one worker with its job. `attempt` counts from 1; `tail` are the last lines of its log."""

    worker: str
    number: int
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
    held = Job.objects.filter(evaluation__kernel__run=run, state=JobState.RUNNING)
    heavy = (
        "spec",
        "evaluation__result",
        *(f"evaluation__kernel__{name}" for name in ("source", "report", "meta")),
    )
    return held.select_related("evaluation__kernel").defer(*heavy).order_by("started_at", "pk")


def _tails(job_ids: list[int]) -> dict[int, str]:
    """Return the last chunk of each job's log under its present fencing token."""
    chunks = JobLog.objects.filter(job__in=job_ids, fence=F("job__fence")).order_by("job", "-seq").distinct("job")
    return dict(chunks.values_list("job_id", "text"))


def _card(job: Job, log: str) -> WorkerCard:
    evaluation = job.evaluation
    lines = plain_log(log[-TAIL_CHARS:]).rstrip().splitlines()[-TAIL_LINES:]
    return WorkerCard(
        worker=job.worker,
        number=evaluation.kernel.number,
        title=evaluation.kernel.title,
        effort=evaluation.effort,
        stage=evaluation.stage or "starting",
        attempt=job.attempts,
        since=job.started_at,
        tail="\n".join(lines),
    )
