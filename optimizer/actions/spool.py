"""Export jobs to a spool directory and import results. Both may be repeated, interrupted and run in parallel."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from dataclasses import dataclass

from django.db import DataError, IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from optimizer import queue
from optimizer.actions.job import do_finish_job, do_let_go, do_refuse_job, do_start_job
from optimizer.models import Job, JobState, Runner, Target
from optimizer.runs.dispatch import checked_spec
from optimizer.text.storable import storable
from runners.dispatch.spool import Slip, Spool, SpoolDispatcher, Turn
from runners.job import Effort, JobResult, Status
from runners.job_source import Receipt, RunnerCard
from runners.signing.envelope import EnvelopeError, StrangerError
from runners.signing.keyring import Role

# The machine behind a spool may be booked for days. Each sync renews the leases of jobs that are still there.
LEASE = dt.timedelta(days=7)
AT_ONCE = 64
# What the name of a directory as a holder of jobs begins with, and how many characters of its path follow.
WORKER, MOST_PATH = "spool:", 94
# What a value raises that no column takes. A database that is away raises something else, and is asked again.
UNRECORDABLE = (ArithmeticError, DataError, IntegrityError, LookupError, RecursionError, TypeError, ValueError)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Synced:
    """Count what one sync did."""

    exported: int = 0
    imported: int = 0
    repeated: int = 0
    refused: int = 0
    withdrawn: int = 0


def do_sync_spool(spool: Spool, target: Target, at_once: int = AT_ONCE) -> Synced:
    """Import results, withdraw cancelled jobs, renew leases, and export new jobs.

    Raises SpoolError; what was done until then is kept.
    """
    spool.announce(Role.SITE)
    # Import first: results free places for new jobs, and a finished job needs no renewal.
    receipts = _import_results(spool)
    withdrawn = _withdraw_cancelled(spool, target)
    _renew(spool, target)
    _register_runners(spool)
    exported = _export(spool, target, at_once)
    return Synced(
        exported,
        receipts.count(Receipt.RECORDED),
        receipts.count(Receipt.REPEATED),
        receipts.count(Receipt.REFUSED),
        withdrawn,
    )


def do_reclaim(spool: Spool, target: Target) -> int:
    """Queue again the jobs that were exported to this directory and are no longer there; return how many.

    For a directory whose contents were lost: without this, its jobs wait until their leases of a week expire. No
    attempt is used up. Should a result of one of them come back all the same, it is refused, because the job has
    another holder. Call it neither beside an export nor while the directory is on its way to a device, or the jobs
    are measured twice.
    """
    # What an export has claimed and not written yet has a short lease.
    exported = _out(target).filter(worker=_worker(spool), lease_until__gt=timezone.now() + queue.LEASE)
    slips = [Slip(job.pk, job.fence) for job in exported.filter(cancel_requested=False)]
    # A file that a worker moves from one folder to another may be missed once.
    lost = [slip for slip in slips if not spool.holds(slip) and not spool.holds(slip)]
    return sum(_take_back(slip, f"lost with {spool.root}") for slip in lost)


def directories_out(target: Target) -> list[str]:
    """Return the directories in which jobs of the target are out, as `do_sync_spool` named them."""
    names = _out(target).order_by("worker").values_list("worker", flat=True).distinct()
    return [name.removeprefix(WORKER) for name in names]


def _take_back(slip: Slip, why: str) -> bool:
    """Queue a job again. One that was cancelled meanwhile ends."""
    if queue.unclaim(slip.job_id, slip.fence, why):
        return True
    do_let_go(slip.job_id, slip.fence)
    return False


def _import_results(spool: Spool) -> list[Receipt]:
    receipts = []
    for slip, result in spool.results():
        if result.job_id != _job_name(slip):
            spool.refuse(slip, "results", "this result belongs to no job here")
            receipts.append(Receipt.REFUSED)
            continue
        receipts.append(_imported(spool, slip, result))
    _hand_back_refused(spool)
    return receipts


def _imported(spool: Spool, slip: Slip, result: JobResult) -> Receipt:
    """Record one result. One that cannot be recorded is refused, so that it holds up no other."""
    try:
        receipt = do_finish_job(slip.job_id, slip.fence, result)
    except UNRECORDABLE as error:
        logger.exception("the result of job %s in %s cannot be recorded", slip.job_id, spool.root)
        spool.refuse(slip, "results", f"cannot be recorded: {type(error).__name__}: {error}")
        return Receipt.REFUSED
    # After the commit: a crash in between imports the result again, which changes nothing.
    spool.acknowledge(slip)
    return receipt


def _hand_back_refused(spool: Spool) -> None:
    """Queue again the jobs whose result cannot be read, as after any other infrastructure failure."""
    for slip, reason in spool.refused():
        if queue.held(slip.job_id, slip.fence).filter(dispatcher=SpoolDispatcher.name).exists():
            trouble = JobResult(_job_name(slip), Status.INFRA_ERROR, reasons=[f"spool: {reason}"[:1000]])
            do_finish_job(slip.job_id, slip.fence, trouble)


def _withdraw_cancelled(spool: Spool, target: Target) -> int:
    withdrawn = 0
    for job in _out(target).filter(cancel_requested=True):
        slip = Slip(job.pk, job.fence)
        spool.cancel(slip)
        # A worker there may still hold the job; it is withdrawn at a later sync.
        if not spool.holds(slip):
            do_let_go(job.pk, job.fence)
            spool.forget(slip)
            withdrawn += 1
    return withdrawn


def _renew(spool: Spool, target: Target) -> None:
    for job in _out(target).filter(cancel_requested=False):
        if spool.holds(Slip(job.pk, job.fence)):
            queue.beat(job.pk, job.fence, LEASE)


def _export(spool: Spool, target: Target, at_once: int) -> int:
    """Export jobs until `at_once` are out. A job that cannot be written goes back to the queue.

    The long lease starts only when the file exists: should this process die in between, the job can be claimed again
    after a minute.
    """
    exported = 0
    # Jobs that lie in a directory cannot be taken by other runners, so only a limited number goes out.
    room = at_once - _out(target).count()
    while exported < room and (claimed := queue.claim(_queue(target), _worker(spool))):
        try:
            # The spool is signed anew, so what this site has not made must not get there.
            spec = checked_spec(claimed)
        except EnvelopeError as error:
            do_refuse_job(claimed.job_id, claimed.fence, str(error), elsewhere=isinstance(error, StrangerError))
            continue
        try:
            spool.offer(Slip(claimed.job_id, claimed.fence), spec, _turn(claimed.job_id))
        except Exception as error:
            _take_back(Slip(claimed.job_id, claimed.fence), str(error))
            raise
        queue.beat(claimed.job_id, claimed.fence, LEASE)
        do_start_job(claimed.job_id, claimed.fence)
        exported += 1
    return exported


def _turn(job_id: int) -> Turn | None:
    """Return the job's place in the queue: a worker takes any number of jobs from a spool in the order of the queue."""
    job = Job.objects.filter(pk=job_id).only("priority", "place").first()
    return None if job is None else Turn(job.priority, job.turn)


def _register_runners(spool: Spool) -> None:
    """Update the rows of the workers that left cards in the spool, and pass on whether they shall drain."""
    for card, seen in spool.cards():
        target = Target.objects.filter(key=card.target).first()
        if target is None:
            continue
        try:
            with transaction.atomic():
                runner, _ = Runner.objects.update_or_create(name=card.name[:120], defaults=_row(card, target, seen))
        except UNRECORDABLE:
            logger.exception("the card of %r in %s cannot be recorded", card.name[:120], spool.root)
            continue
        spool.drain(card.name, runner.draining)


def _row(card: RunnerCard, target: Target, seen: float) -> dict[str, object]:
    # The clock of a machine behind a spool may be ahead of ours, which would make a dead runner look alive.
    heard = dt.datetime.fromtimestamp(min(max(seen, 0.0), timezone.now().timestamp()), dt.UTC)
    job = card.facts.get("job")
    current = Job.objects.filter(pk=job, dispatcher=SpoolDispatcher.name) if isinstance(job, int) else None
    return {
        "target": target, "queues": [str(queue)[:60] for queue in card.queues[:8]], "device": card.device[:120],
        "facts": storable(card.facts), "sandbox": card.sandbox[:20], "heartbeat_at": heard,
        "current_job": current.first() if current else None,
    }  # fmt: skip


def _out(target: Target) -> QuerySet[Job]:
    return Job.objects.filter(queue=_queue(target), state=JobState.RUNNING)


def _queue(target: Target) -> str:
    return SpoolDispatcher().queue_for(target.key, Effort.FULL)


def _worker(spool: Spool) -> str:
    """Return the name of the directory as a holder of jobs, the same however its path is written."""
    path = str(spool.root.resolve())
    if len(path) > MOST_PATH:
        path = f"{hashlib.sha256(path.encode()).hexdigest()[:12]}…{path[13 - MOST_PATH :]}"
    return f"{WORKER}{path}"


def _job_name(slip: Slip) -> str:
    """Return the job id that a spec of this slip carries; jobs of other dispatchers never match."""
    ours = Job.objects.filter(pk=slip.job_id, dispatcher=SpoolDispatcher.name)
    return str(ours.values_list("spec__job_id", flat=True).first())
