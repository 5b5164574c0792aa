"""How an evaluation can end early. Only `InfraFailure` is the harness's or the machine's doing."""

from __future__ import annotations

from runners.job import Status


class CandidateFailure(Exception):
    """The candidate failed: that is data. `case` names where, when it is known."""

    def __init__(self, status: Status, reason: str, case: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.case = case


class InfraFailure(Exception):
    """The harness, the oracle or the machine failed; nothing is known of the candidate."""


class Cancelled(Exception):
    """Whoever asked for the evaluation wants it no more."""
