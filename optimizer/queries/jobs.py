"""Find the jobs of a run, and a job's place in its queue."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Avg, F, Q, QuerySet

from optimizer.models import Job, JobState, Run
from optimizer.models.job import TURN

# Finished jobs of a queue from which the wait is estimated, and how many jobs of all queues are searched for them: one
# that has finished none would be looked for in the whole table.
RECENT_JOBS, SEARCHED_JOBS = 20, 20_000


@dataclass(frozen=True)
class QueuePlace:
    """Hold how many jobs are before a waiting one, and the expected wait in s, None without finished jobs."""

    ahead: int
    wait_s: float | None


def jobs_of(run: Run) -> QuerySet[Job]:
    """Return all jobs of a run, of evaluations, tool calls and batches compiled ahead."""
    return Job.objects.filter(Q(evaluation__kernel__run=run) | Q(tool_call__run=run) | Q(ahead_batch__run=run))


def place_of(job: Job) -> QueuePlace:
    """Return the job's place in its queue, by the order in which jobs are claimed."""
    same = Job.objects.filter(queue=job.queue).alias(by_turn=TURN)
    earlier = Q(priority__lt=job.priority) | Q(priority=job.priority, by_turn__lt=job.turn)
    ahead = same.filter(earlier, state=JobState.QUEUED).count()
    running = same.filter(state=JobState.RUNNING).count()
    done = same.filter(state=JobState.DONE, started_at__isnull=False, pk__gt=job.pk - SEARCHED_JOBS)
    newest = done.order_by("-pk")[:RECENT_JOBS]
    took = Job.objects.filter(pk__in=newest.values("pk")).aggregate(mean=Avg(F("finished_at") - F("started_at")))
    if took["mean"] is None:
        return QueuePlace(ahead, None)
    # Each running job is on average half done, and as many run at a time as run now.
    return QueuePlace(ahead, took["mean"].total_seconds() * (ahead + running / 2) / max(1, running))
