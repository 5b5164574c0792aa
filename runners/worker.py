"""Run the loop of a measuring process: claim, evaluate under a heartbeat, deliver. It knows the queue only as a port.

A crash loses nothing: the claim's lease runs out and another worker takes the job under a higher fencing token. A
harness that hangs beyond its own limits is cancelled and then ended with its process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from runners.job import JobResult, JobSpec, Status
from runners.job_source import Beat, Claim, JobSource, Receipt
from runners.log_context import about

# How long a harness may stay over its own limit, and how long it may take to stop.
GRACE_S = 60.0
# A result took a device's time, so it is not given up at the first failure.
FINISH_PATIENCE_S = 300.0
# EX_SOFTWARE of sysexits.h.
EXIT_HUNG = 70

Evaluate = Callable[..., JobResult]
logger = logging.getLogger(__name__)


def work_once(source: JobSource, queue: str, worker: str, evaluate: Evaluate) -> bool:
    """Evaluate the queue's next job. Return False if there was none."""
    claim = source.claim(queue, worker)
    if claim is None:
        return False
    work_on(source, claim, evaluate)
    return True


def work_on(source: JobSource, claim: Claim, evaluate: Evaluate) -> Receipt | None:
    """Evaluate one claimed job. Return None if it was cancelled or its lease was lost meanwhile."""
    with about(**ids_of(claim)), Heartbeat(source, claim) as heartbeat:
        result = _evaluate(source, claim, evaluate, heartbeat)
        if not heartbeat.stopped:
            return hand_in(source, claim, result)
    with suppress(Exception):
        source.let_go(claim)
    return None


def ids_of(claim: Claim) -> dict[str, int]:
    """Return the ids that log lines of the job carry."""
    return ({"run": claim.run_id} if claim.run_id else {}) | {"job": claim.job_id, "fence": claim.fence}


def hand_in(source: JobSource, claim: Claim, result: JobResult) -> Receipt | None:
    """Deliver the result, repeatedly if needed: a lost reply may hide an accepted result, and repeating is safe."""
    deadline = time.monotonic() + FINISH_PATIENCE_S
    pause_s = 0.2
    while True:
        try:
            return source.finish(claim, result)
        except Exception:
            if time.monotonic() > deadline:
                logger.exception("job %s: the queue does not take the result; its lease will run out", claim.job_id)
                return None
            logger.warning("job %s: handing in failed, trying again", claim.job_id, exc_info=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 10.0)


def _evaluate(source: JobSource, claim: Claim, evaluate: Evaluate, heartbeat: Heartbeat) -> JobResult:
    log = LiveLog(source, claim)
    try:
        return evaluate(claim.spec, cancel=lambda: heartbeat.stopped, on_progress=log.add)
    except Exception as error:
        logger.exception("job %s: the harness failed", claim.job_id)
        return _infra_error(claim.spec, f"{type(error).__name__}: {error}")


def _infra_error(spec: JobSpec, reason: str) -> JobResult:
    return JobResult(job_id=spec.job_id, status=Status.INFRA_ERROR, reasons=[reason[:1000]])


class Heartbeat:
    """Keep a claim alive from its own thread.

    `stopped` becomes true for good if the job was cancelled, the lease was lost, or the job exceeded its limit by
    `GRACE_S`. If the harness ignores that for another `GRACE_S`, the process ends, and what it started dies with it.
    """

    def __init__(self, source: JobSource, claim: Claim) -> None:
        self._source = source
        self._claim = claim
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heart of job {claim.job_id}", daemon=True)
        self.stopped = False

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            with about(**ids_of(self._claim)):
                self._beat_until_over()
        finally:
            with suppress(Exception):
                self._source.detach()

    def _beat_until_over(self) -> None:
        limit_s = self._claim.limit_s or self._claim.spec.limits.total_s
        limit = time.monotonic() + limit_s + GRACE_S
        # The worker's own clock decides when the lease has run out, so that it stops before the queue gives the job to
        # another even if every heartbeat is lost.
        kept_until = time.monotonic() + self._claim.lease_s
        while not self._over.wait(self._claim.beat_s):
            answer = self._beat()
            if answer == Beat.GO_ON:
                kept_until = time.monotonic() + self._claim.lease_s
            if answer in {Beat.CANCEL, Beat.LOST} or time.monotonic() > min(kept_until, limit):
                self._stop()
                return

    def _beat(self) -> Beat | None:
        """Return the queue's answer, or None if it cannot be reached."""
        try:
            return self._source.beat(self._claim)
        except Exception:
            logger.warning("job %s: a beat was lost", self._claim.job_id, exc_info=True)
            return None

    def _stop(self) -> None:
        self.stopped = True
        if not self._over.wait(GRACE_S):
            logger.critical("job %s: the harness does not stop; this process ends", self._claim.job_id)
            # Not sys.exit: a harness that ignores its cancellation would ignore an exception in this thread too.
            os._exit(EXIT_HUNG)


class LiveLog:
    """Turn the harness's progress into stage marks and numbered log chunks. A lost one is no reason to stop."""

    def __init__(self, source: JobSource, claim: Claim) -> None:
        self._source = source
        self._claim = claim
        self._stage = ""
        self._seq = 0

    def add(self, stage: str, text: str) -> None:
        """Report the stage that the harness is in, and what there is to log."""
        with suppress(Exception):
            if stage != self._stage:
                self._stage = stage
                self._source.progress(self._claim, stage)
            if text:
                self._seq += 1
                self._source.log(self._claim, self._seq, text)
