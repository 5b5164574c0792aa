"""Define the queue as a worker sees it.

The runners know the queue only as a `JobSource`. The setting `KERNELSCI_JOB_SOURCE` (a dotted path) names the class
that serves it, so that nothing here imports the optimizer.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from runners.job import JobResult, JobSpec


@dataclass(frozen=True)
class Claim:
    """Grant the right to work on one job until `lease_s` seconds after the last accepted heartbeat.

    The queue asks for a heartbeat every `beat_s`. `fence` is the fencing token: it grows with every claim of the job,
    and a result under an older one is refused. `limit_s` is how long the work may take in all; None uses the spec's
    own limits. `settings` are the run's for its dispatcher, `notes` what an earlier claim of the same job stored
    (`OutsideSource.note`). `run_id` is only for the log, 0 if unknown. `signature` is the site's, over `spec`.
    """

    job_id: int
    fence: int
    spec: JobSpec
    lease_s: float
    beat_s: float
    limit_s: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    run_id: int = 0
    signature: str = ""


class Held(Protocol):
    """Name a claim that somebody holds. A `Claim` is one."""

    @property
    def job_id(self) -> int:
        """Return the job's number."""

    @property
    def fence(self) -> int:
        """Return the fencing token."""

    @property
    def run_id(self) -> int:
        """Return the run that the job belongs to, 0 if unknown."""


class Beat(StrEnum):
    """List the queue's answers to a heartbeat. `cancel` and `lost` both mean: stop now and kill the sandbox."""

    GO_ON = "go_on"
    CANCEL = "cancel"
    LOST = "lost"


class Receipt(StrEnum):
    """List the queue's answers to a result. `refused`: another claim holds the job, or it was cancelled."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    REFUSED = "refused"


@dataclass(frozen=True)
class RunnerCard:
    """Describe a worker: unique name, target key, queues it serves, device and machine facts."""

    name: str
    target: str
    queues: tuple[str, ...]
    device: str = ""
    sandbox: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class JobSource(Protocol):
    """Define the queue as a worker sees it.

    Any method may raise if the queue cannot be reached. Only `finish` must then be repeated, which is safe: a result
    is recorded once.
    """

    def claim(self, queue: str, worker: str) -> Claim | None:
        """Take the next job of the queue, or return None if there is none (or the worker is draining)."""

    def beat(self, claim: Claim) -> Beat:
        """Extend the lease."""

    def progress(self, claim: Claim, stage: str) -> None:
        """Say which stage of the cascade has begun."""

    def log(self, claim: Claim, seq: int, text: str) -> None:
        """Add chunk `seq` of the live log; a repeated chunk changes nothing, chunks over the cap are dropped."""

    def finish(self, claim: Claim, result: JobResult) -> Receipt:
        """Hand in the result. `infra_error` puts the job back into the queue until its attempts are used up."""

    def let_go(self, claim: Claim) -> None:
        """Say that work on a cancelled job has stopped."""

    def detach(self) -> None:
        """Release what the source holds for the calling thread, which is about to end."""

    def check_in(self, card: RunnerCard) -> bool:
        """Send the worker's own heartbeat. Return whether to drain: finish the current job and claim no other."""


class OutsideSource(JobSource, Protocol):
    """Define what the queue offers to workers whose jobs are done elsewhere, over hours and over restarts."""

    def note(self, claim: Claim, notes: dict[str, Any], attempts: int) -> bool:
        """Store `notes` with the job for the next claim, and count `attempts` from here. Return False if the claim is
        lost.

        A worker that is replaced while it waits uses no attempt.
        """

    def alone(self, name: str) -> AbstractContextManager[bool]:
        """Try to hold a lock of that name in this installation. Yield False if another worker holds it."""


class ServedSource(Protocol):
    """Define the queue as the site serves it to workers that reach it by requests: their claims come by number."""

    def claim(self, queue: str, worker: str) -> Claim | None:
        """See `JobSource.claim`."""

    def beat(self, claim: Held) -> Beat:
        """See `JobSource.beat`."""

    def progress(self, claim: Held, stage: str) -> None:
        """See `JobSource.progress`."""

    def log(self, claim: Held, seq: int, text: str) -> None:
        """See `JobSource.log`."""

    def finish(self, claim: Held, result: JobResult) -> Receipt:
        """See `JobSource.finish`."""

    def let_go(self, claim: Held) -> None:
        """See `JobSource.let_go`."""

    def refuse(self, claim: Held, reason: str) -> None:
        """Record that a worker does not carry out a job, such as one that nobody whom it trusts has signed."""

    def check_in(self, card: RunnerCard) -> bool:
        """See `JobSource.check_in`."""
