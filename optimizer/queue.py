"""Define the statements of the job queue: who may work on which job, and for how long.

PostgreSQL is the truth; broker messages only announce work. One conditional update claims a job: it raises the
fencing token `fence` and sets a lease. A heartbeat extends the lease. A result counts only under the current token.
`lease_until` of a queued job means "not before". Every function is one statement and safe to call in any order,
twice, or by a worker that was believed dead. `optimizer.actions.job` applies a result to kernel and run.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from optimizer.models import Job, JobState
from optimizer.models.choices import OPEN_JOB_STATES
from optimizer.models.runner import LOST_AFTER

LEASE = dt.timedelta(seconds=settings.LEASE_S)
MAX_ATTEMPTS = 3
RETRY_PAUSE = dt.timedelta(seconds=5)
LOG_CHUNK_CHARS = 16_384
# Together with the size of a chunk, this limits one attempt's live log to 4 MiB.
LOG_CHUNKS = 256

_CLAIM = """
WITH claimed AS (
  UPDATE optimizer_job
     SET state = 'running', fence = fence + 1, attempts = attempts + 1, worker = %(worker)s, error = '',
         lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
         started_at = coalesce(started_at, clock_timestamp())
   WHERE id = coalesce(
     (SELECT id FROM optimizer_job
       WHERE queue = %(queue)s AND state = 'running' AND lease_until < statement_timestamp()
         AND attempts < %(cap)s AND NOT cancel_requested
       ORDER BY lease_until, id FOR UPDATE SKIP LOCKED LIMIT 1),
     (SELECT id FROM optimizer_job
       WHERE queue = %(queue)s AND state = 'queued' AND (lease_until IS NULL OR lease_until < statement_timestamp())
         AND attempts < %(cap)s AND NOT cancel_requested
         AND (NOT external ? 'only_runner' OR external ->> 'only_runner' = %(worker)s OR NOT EXISTS (
           SELECT FROM optimizer_runner tied
            WHERE left(tied.name, 100) = optimizer_job.external ->> 'only_runner' AND NOT tied.draining
              AND tied.queues ? %(queue)s
              AND tied.heartbeat_at > statement_timestamp() - make_interval(secs => %(lost_after_s)s)))
       ORDER BY priority, coalesce(place, id) FOR UPDATE SKIP LOCKED LIMIT 1))
     AND NOT EXISTS (SELECT FROM optimizer_runner WHERE name = %(worker)s AND draining)
  RETURNING id, fence, spec, signature, external, evaluation_id
), taken AS (
  UPDATE optimizer_runner SET current_job_id = claimed.id, heartbeat_at = clock_timestamp()
    FROM claimed WHERE name = %(worker)s
), sync AS (
  SELECT set_config('synchronous_commit', %(sync)s, true)
)
SELECT claimed.id, claimed.fence, run.id, claimed.signature, claimed.spec, claimed.external, run.dispatch_settings
  FROM sync, claimed
  LEFT JOIN optimizer_evaluation evaluation ON evaluation.id = claimed.evaluation_id
  LEFT JOIN optimizer_kernel kernel ON kernel.id = evaluation.kernel_id
  LEFT JOIN optimizer_toolcall tool ON tool.job_id = claimed.id
  LEFT JOIN optimizer_aheadbatch ahead ON ahead.job_id = claimed.id
  JOIN optimizer_run run ON run.id = coalesce(kernel.run_id, tool.run_id, ahead.run_id)
"""

# The unique key makes a repeated upload after a lost reply harmless.
_ADD_LOG = """
INSERT INTO optimizer_joblog (job_id, fence, seq, text, created_at)
SELECT id, fence, %(seq)s, %(text)s, statement_timestamp()
  FROM optimizer_job
 WHERE id = %(job)s AND fence = %(fence)s AND state = 'running'
ON CONFLICT (job_id, fence, seq) DO NOTHING
"""


@dataclass(frozen=True)
class Claimed:
    """Hold a job under a fencing token.

    `notes` were left by an earlier holder (see `note`); `settings` are the run's for its dispatcher.
    """

    job_id: int
    fence: int
    run_id: int
    signature: str
    spec: dict[str, Any]
    notes: dict[str, Any]
    settings: dict[str, Any]


def claim(queue: str, worker: str, lease: dt.timedelta = LEASE, *, durable: bool = True) -> Claimed | None:
    """Claim a job that a lost worker left behind, else the first waiting job of the lowest priority number, else
    None.

    A waiting job that is tied to a runner (see `tied_to`) is passed over by others while that one is alive. Returns
    None also for a worker that is draining. With `durable` False, the claim reaches the disk only with the
    connection's next commit, which the caller makes before anybody begins, so that only one disk flush is needed.
    Should the database die between the two, nobody has begun, and the job still waits.
    """
    asked: dict[str, str | float] = {
        "worker": worker[:100], "lease_s": lease.total_seconds(), "queue": queue, "cap": MAX_ATTEMPTS,
        "sync": "on" if durable else "off", "lost_after_s": LOST_AFTER.total_seconds(),
    }  # fmt: skip
    # One statement decides between competing workers: SKIP LOCKED lets each take another row without waiting.
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, asked)
        row = cursor.fetchone()
    return Claimed(*row[:4], *map(_decoded, row[4:])) if row else None


def tied_to(worker: str) -> dict[str, Any]:
    """Return the `external` of a new job that waits for one runner, as long as that is alive and serves its queue."""
    return {"only_runner": worker} if worker else {}


def _decoded(stored: Any) -> dict[str, Any]:
    """Decode a JSON column, which Django makes the driver return as text."""
    return dict(json.loads(stored) if isinstance(stored, str) else stored)


def held(job_id: int, fence: int) -> QuerySet[Job]:
    """Return the job if that fencing token still holds it."""
    return Job.objects.filter(pk=job_id, fence=fence, state=JobState.RUNNING)


def beat(job_id: int, fence: int, lease: dt.timedelta = LEASE) -> bool | None:
    """Extend the lease. Return True to continue, False when cancelling was requested, None when the claim is lost."""
    if not held(job_id, fence).update(lease_until=Now() + lease):
        return None
    return not Job.objects.filter(pk=job_id, cancel_requested=True).exists()


def finish(job_id: int, fence: int) -> bool:
    """Close the job under that token. Return True for the one caller who may now record its result."""
    # A result that arrives after a cancellation was requested is dropped, so that a stopped run stays as it is.
    return held(job_id, fence).filter(cancel_requested=False).update(**_ended(JobState.DONE)) == 1


def was_finished_by(job_id: int, fence: int) -> bool:
    """Return True when this token's result was recorded, for a caller that lost the reply to `finish`."""
    return Job.objects.filter(pk=job_id, fence=fence, state=JobState.DONE).exists()


def release(job_id: int, fence: int, error: str) -> bool:
    """Return a claimed job to the queue after an infrastructure error; it can be claimed again after a pause.

    Returns False for a job that was asked to stop: nobody would take it from the queue.
    """
    # The pause keeps a job that fails at once from circling between workers.
    changes = {"state": JobState.QUEUED, "lease_until": Now() + RETRY_PAUSE, "error": error[:4000]}
    left = held(job_id, fence).filter(attempts__lt=MAX_ATTEMPTS, cancel_requested=False)
    return left.update(**changes) == 1


def unclaim(job_id: int, fence: int, error: str) -> bool:
    """Return a claimed job that nobody has worked on, or can work on, to the queue without using up an attempt.

    Returns False for a job that was asked to stop, as `release` does.
    """
    changes = {"state": JobState.QUEUED, "lease_until": Now() + RETRY_PAUSE, "error": error[:4000]}
    return held(job_id, fence).filter(cancel_requested=False).update(attempts=F("attempts") - 1, **changes) == 1


def refuse(job_id: int, fence: int, error: str) -> bool:
    """End a claimed job that must not be carried out, however many attempts it has left."""
    return held(job_id, fence).update(error=error[:4000], **_ended(JobState.FAILED_INFRA)) == 1


def fail(job_id: int, fence: int, error: str) -> bool:
    """End a job whose attempts are used up, under that token (its lease expired, or it was returned)."""
    used_up = Job.objects.filter(pk=job_id, fence=fence, state__in=OPEN_JOB_STATES, attempts__gte=MAX_ATTEMPTS)
    return used_up.update(error=error[:4000], **_ended(JobState.FAILED_INFRA)) == 1


def cancel(jobs: QuerySet[Job]) -> int:
    """Cancel waiting jobs and ask the holders of running ones to stop. Return how many jobs were open."""
    # Waiting jobs first: a job that is claimed between the two statements is then found among the running ones.
    waiting = jobs.filter(state=JobState.QUEUED).update(cancel_requested=True, **_ended(JobState.CANCELLED))
    return waiting + jobs.filter(state=JobState.RUNNING).update(cancel_requested=True)


def close_cancelled(job_id: int, fence: int) -> bool:
    """End a job that was asked to stop, after its holder stopped or was lost."""
    asked = held(job_id, fence).filter(cancel_requested=True)
    return asked.update(**_ended(JobState.CANCELLED)) == 1


def lost_while_cancelled() -> list[tuple[int, int]]:
    """Return (id, token) of jobs that were asked to stop and whose lease expired."""
    lost = Job.objects.filter(state=JobState.RUNNING, cancel_requested=True, lease_until__lt=Now())
    return list(lost.values_list("pk", "fence"))


def store_notes(job_id: int, fence: int, notes: dict[str, Any], attempts: int) -> bool:
    """Store notes with a held job and set its attempts. Return False when the claim is lost."""
    return held(job_id, fence).update(external=notes, attempts=attempts) == 1


def used_up() -> list[tuple[int, int]]:
    """Return (id, token) of jobs whose last allowed attempt lost its lease."""
    lost = Job.objects.filter(state__in=OPEN_JOB_STATES, attempts__gte=MAX_ATTEMPTS, cancel_requested=False)
    return list(lost.filter(lease_until__lt=Now()).values_list("pk", "fence"))


def claimable_queues() -> list[tuple[str, str]]:
    """Return (dispatcher, queue) of all jobs that could be claimed now."""
    claimable = Job.objects.filter(
        state__in=OPEN_JOB_STATES,
        attempts__lt=MAX_ATTEMPTS,
        cancel_requested=False,
        # Queued jobs in their pause and running jobs with a live lease are not claimable.
    ).exclude(lease_until__gte=Now())
    return list(claimable.order_by().values_list("dispatcher", "queue").distinct())


def add_log(job_id: int, fence: int, seq: int, text: str) -> bool:
    """Store chunk `seq` of the live log once, under the current token. Return False when it was dropped."""
    # The limit bounds what a talkative kernel can write into the database.
    if not 0 < seq <= LOG_CHUNKS:
        return False
    chunk = text[:LOG_CHUNK_CHARS].replace("\x00", "�")
    with connection.cursor() as cursor:
        cursor.execute(_ADD_LOG, {"job": job_id, "fence": fence, "seq": seq, "text": chunk})
        return bool(cursor.rowcount == 1)


def _ended(state: JobState) -> dict[str, Any]:
    return {"state": state, "finished_at": Now(), "lease_until": None}
