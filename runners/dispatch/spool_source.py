"""Present a spool directory as the queue that a worker sees."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from runners.dispatch.spool import ABANDONED_AFTER_S, Slip, Spool, SpoolError
from runners.job import JobResult
from runners.job_source import Beat, Claim, Receipt, RunnerCard

# Twenty heartbeats fit into the time after which a claim counts as abandoned.
BEAT_S = 15.0


class SpoolSource:
    """Implement `runners.job_source.JobSource` on a `Spool`, for jobs of one target."""

    def __init__(self, spool: Spool, target: str | None = None) -> None:
        self.spool = spool
        self.target = target
        self._working_on: Slip | None = None
        self._card: RunnerCard | None = None

    def claim(self, queue: str, worker: str) -> Claim | None:
        """Claim the waiting job of our target whose turn it is, after putting back what others abandoned."""
        self.spool.put_back_abandoned()
        taken = self.spool.take(self.target)
        if taken is None:
            return None
        slip, spec = taken
        self._working_on = slip
        return Claim(slip.job_id, slip.fence, spec, ABANDONED_AFTER_S, BEAT_S)

    def leave(self) -> None:
        """Give back the current job at once, because the worker was told to end."""
        if self._working_on is not None:
            self.spool.give_back(self._working_on)

    def beat(self, claim: Claim) -> Beat:
        """Renew the claim (see `Spool.beat`) and the worker's card, which names the job."""
        if self._card is not None:
            with suppress(SpoolError):
                self.spool.introduce(replace(self._card, facts={**self._card.facts, "job": claim.job_id}))
        return self.spool.beat(_slip(claim))

    def progress(self, claim: Claim, stage: str) -> None:
        """Do nothing, because nobody watches a spool live."""

    def log(self, claim: Claim, seq: int, text: str) -> None:
        """Do nothing, because nobody watches a spool live; the stages' logs are in the result."""

    def finish(self, claim: Claim, result: JobResult) -> Receipt:
        """Deliver the result (see `Spool.deliver`). Whether it counts is decided when it is taken in."""
        self.spool.deliver(_slip(claim), result)
        self._working_on = None
        return Receipt.RECORDED

    def let_go(self, claim: Claim) -> None:
        """Release the claim (see `Spool.let_go`)."""
        self._working_on = None
        self.spool.let_go(_slip(claim))

    def detach(self) -> None:
        """Do nothing, because files hold nothing for a thread."""

    def check_in(self, card: RunnerCard) -> bool:
        """Renew the worker's card (see `Spool.introduce`)."""
        self._card = card
        return self.spool.introduce(card)


def _slip(claim: Claim) -> Slip:
    return Slip(claim.job_id, claim.fence)
