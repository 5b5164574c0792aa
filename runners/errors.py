"""How an evaluation can end early. `InfraFailure` is the harness's or the machine's doing, `TooLarge` the problem's."""

from __future__ import annotations

from runners.job import Status

CANDIDATE, BASELINE, PARENT = "candidate", "baseline", "parent"
"""The sides of a comparison."""


class CandidateFailure(Exception):
    """A side of a comparison failed: that is data. `case` names where, when it is known; `side` says who failed."""

    def __init__(self, status: Status, reason: str, case: str | None = None, side: str = CANDIDATE) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.case = case
        self.side = side


class InfraFailure(Exception):
    """The harness, the oracle or the machine failed; nothing is known of the candidate."""


class TooLarge(Exception):
    """The problem does not fit into the device's memory; nothing is known of the candidate."""


class Cancelled(Exception):
    """Whoever asked for the evaluation wants it no more."""
