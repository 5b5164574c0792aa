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
    """The right to work on one job until `lease_s` seconds after the last accepted beat; the queue dictates a beat
    every `beat_s`. `fence` grows with every claim of the job: a result under an older fence is refused.

    `limit_s` is how long the work may take in all, None: what the spec's own limits say. `settings` are the run's
    for its dispatcher, `notes` what an earlier claim of the same job left (`OutsideSource.note`).
    `run_id` is for the log alone, 0 where nobody knows it."""

    job_id: int
    fence: int
    spec: JobSpec
    lease_s: float
    beat_s: float
    limit_s: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    run_id: int = 0


class Beat(StrEnum):
    """What the queue answers to a heartbeat. `cancel` and `lost` both mean: stop now and kill the sandbox."""

    GO_ON = "go_on"
    CANCEL = "cancel"
    LOST = "lost"


class Receipt(StrEnum):
    """What the queue answers to a result. `refused`: another claim holds the job, or it was cancelled."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    REFUSED = "refused"


@dataclass(frozen=True)
class RunnerCard:
    """How a worker introduces itself: unique name, target key, queues it serves, device and machine facts."""

    name: str
    target: str
    queues: tuple[str, ...]
    device: str = ""
    sandbox: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class JobSource(Protocol):
    """The queue as a worker sees it. Any method may raise when the queue cannot be reached; only `finish` must then
    be repeated, which is safe: a result is recorded once."""

    def claim(self, queue: str, worker: str) -> Claim | None:
        """Take the next job of the queue, or None when there is none (or the worker is draining)."""

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
        """The calling thread is about to end: give back what the source holds for it."""

    def check_in(self, card: RunnerCard) -> bool:
        """The worker's own heartbeat. True when it should drain: finish the current job and claim no other."""


class OutsideSource(JobSource, Protocol):
    """What the queue offers to workers that have their jobs done by somebody else, over hours and over restarts."""

    def note(self, claim: Claim, notes: dict[str, Any], attempts: int) -> bool:
        """Keep `notes` with the job, for whoever claims it next, and count `attempts` from here: a worker that is
        replaced while it waits uses none up. False when the claim is lost."""

    def alone(self, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one in this installation under that name; False when somebody else is."""
