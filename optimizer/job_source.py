"""Provide the queue to the workers: `runners.job_source.JobSource` on the database.

The setting `KERNELSCI_JOB_SOURCE` names this class.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from optimizer import queue
from optimizer.actions.job import do_finish_job, do_let_go, do_refuse_job, do_start_job
from optimizer.actions.target import do_sync_targets
from optimizer.events.sockets import broadcast
from optimizer.models import Evaluation, Kernel, Runner, Target, ToolCall
from optimizer.runs.dispatch import checked_spec
from optimizer.runs.locking import try_advisory_lock
from optimizer.text.storable import storable, storable_text
from runners.job import JobResult
from runners.job_source import Beat, Claim, Held, Receipt, RunnerCard
from runners.signing.envelope import EnvelopeError, StrangerError

BROADCASTS_PER_S = 10

logger = logging.getLogger(__name__)


class DatabaseJobSource:
    """Serve a worker's main thread and its heartbeat thread, each with its own lasting connection."""

    def __init__(self) -> None:
        self._last_broadcast: dict[int, float] = {}

    def claim(self, queue_name: str, worker: str) -> Claim | None:
        """Claim the next job, unless the worker is draining. End a job that this site has not signed."""
        _drop_failed_connection()
        # The next commit, that of `do_start_job`, makes both durable: one disk flush instead of two.
        claimed = queue.claim(queue_name, worker, durable=False)
        if claimed is None:
            return None
        try:
            spec = checked_spec(claimed)
        except EnvelopeError as error:
            do_refuse_job(claimed.job_id, claimed.fence, str(error), elsewhere=isinstance(error, StrangerError))
            _clear_current(claimed.job_id)
            return None
        if not do_start_job(claimed.job_id, claimed.fence):
            return None
        return Claim(
            claimed.job_id, claimed.fence, spec, queue.LEASE.total_seconds(), settings.BEAT_S,
            settings=claimed.settings, notes=claimed.notes, run_id=claimed.run_id, signature=claimed.signature,
        )  # fmt: skip

    def note(self, claim: Claim, notes: dict[str, Any], attempts: int) -> bool:
        """Store what the next holder of the job must know."""
        _drop_failed_connection()
        return queue.store_notes(claim.job_id, claim.fence, storable(notes), attempts)

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Hold an advisory lock of the connection. PostgreSQL releases it when the worker dies."""
        _drop_failed_connection()
        held = try_advisory_lock("pg_try_advisory_lock", name)
        try:
            yield held
        finally:
            if held:
                # A failed connection has released the lock already.
                with suppress(DatabaseError):
                    try_advisory_lock("pg_advisory_unlock", name)

    def beat(self, claim: Held) -> Beat:
        """Extend the lease, and report whether somebody wants the job stopped."""
        _drop_failed_connection()
        # None means that the lease was lost, and False that somebody asked to cancel.
        answer = queue.beat(claim.job_id, claim.fence)
        if answer is None:
            return Beat.LOST
        return Beat.GO_ON if answer else Beat.CANCEL

    def progress(self, claim: Held, stage: str) -> None:
        """Store the stage on the evaluation or tool call and broadcast it."""
        # A worker that lost its lease must not overwrite the stage that the new holder reports.
        held = queue.held(claim.job_id, claim.fence)
        shown = storable_text(stage)[:30]
        if Evaluation.objects.filter(job__in=held).update(stage=shown):
            kernel = Kernel.objects.only("run_id", "number").get(evaluations__job=claim.job_id)
            broadcast(kernel.run_id, "stage", number=kernel.number, stage=stage[:30])
        elif ToolCall.objects.filter(job__in=held).update(stage=shown):
            broadcast(claim.run_id, "stage", tool=claim.job_id, stage=stage[:30])

    def log(self, claim: Held, seq: int, text: str) -> None:
        """Store a chunk of the live log and announce it; pages fetch the text themselves."""
        if queue.add_log(claim.job_id, claim.fence, seq, storable_text(text)) and self._may_broadcast(claim.job_id):
            broadcast(claim.run_id, "log", job=claim.job_id, fence=claim.fence, seq=seq)

    def finish(self, claim: Held, result: JobResult) -> Receipt:
        """Record the result. A repeated call gets the same answer as the first."""
        _drop_failed_connection()
        receipt = do_finish_job(claim.job_id, claim.fence, result)
        _clear_current(claim.job_id)
        logger.info("job %s under fence %s: %s, %s", claim.job_id, claim.fence, result.status.value, receipt.value)
        return receipt

    def let_go(self, claim: Held) -> None:
        """Record that the worker has stopped on request."""
        _drop_failed_connection()
        do_let_go(claim.job_id, claim.fence)
        _clear_current(claim.job_id)

    def refuse(self, claim: Held, reason: str) -> None:
        """Take back a job that its worker does not carry out. Other workers may try, since it is sound here."""
        _drop_failed_connection()
        do_refuse_job(claim.job_id, claim.fence, storable_text(reason), elsewhere=True)
        _clear_current(claim.job_id)

    def check_in(self, card: RunnerCard) -> bool:
        """Update the runner's row. Return True when it should drain."""
        _drop_failed_connection()
        # A runner may start before the site has ever synchronised its targets.
        target = Target.objects.filter(key=card.target).first() or _sync_target(card.target)
        facts = {
            "target": target,
            "queues": list(card.queues),
            "device": card.device[:120],
            "facts": storable(card.facts),
            "sandbox": card.sandbox[:20],
            "heartbeat_at": timezone.now(),
        }
        runner, _ = Runner.objects.update_or_create(name=card.name[:120], defaults=facts)
        return runner.draining

    def detach(self) -> None:
        """Close the calling thread's connection."""
        connection.close()

    def _may_broadcast(self, job_id: int) -> bool:
        now = time.monotonic()
        if now - self._last_broadcast.get(job_id, 0.0) < 1 / BROADCASTS_PER_S:
            return False
        # One worker has one job, so the entries of earlier jobs need not be kept.
        self._last_broadcast = {job_id: now}
        return True


def _drop_failed_connection() -> None:
    """Drop a connection that has failed, so that the next statement opens another; keep a working one."""
    if connection.errors_occurred and not connection.in_atomic_block:
        connection.close()


def _clear_current(job_id: int) -> None:
    Runner.objects.filter(current_job=job_id).update(current_job=None)


def _sync_target(key: str) -> Target:
    do_sync_targets()
    return Target.objects.get(key=key)
