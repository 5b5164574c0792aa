"""Define how an evaluation can end early.

`InfraFailure` is the fault of the harness or the machine, `TooLarge` that of the problem.
"""

from __future__ import annotations

from runners.job import Status

# The sides of a comparison.
CANDIDATE, BASELINE, PARENT = "candidate", "baseline", "parent"


class CandidateFailure(Exception):
    """Report that a side of a comparison failed, which is a result of the evaluation.

    `case` names the case if known, `side` the side that failed, `level` how the process was confined that failed
    while it was started.
    """

    def __init__(self, status: Status, reason: str, case: str | None = None, side: str = CANDIDATE) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.case = case
        self.side = side
        self.level = ""


class InfraFailure(Exception):
    """Report that the harness, the oracle or the machine failed, so nothing is known of the candidate."""


class TooLarge(Exception):
    """Report that the problem does not fit into the device's memory, so nothing is known of the candidate."""


class Cancelled(Exception):
    """Report that the evaluation was cancelled."""
