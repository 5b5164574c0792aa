"""Check a kernel in emulation, where its device is absent: on the smallest test cases, against the ordinary oracle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runners import emulation
from runners.backends import BuildRequest
from runners.emulation.report import stopped
from runners.errors import CANDIDATE, CandidateFailure
from runners.harness.memory.contents import Content, Setups
from runners.harness.oracle.client import OracleClient
from runners.harness.processes.participant import CandidateProcess
from runners.harness.verdict.checks import CaseOutcome, Checks
from runners.job import Limits, Status
from runners.problems.base import Case, Problem, Purpose

# Seconds in which a further case must be expected to end, and most cases.
FURTHER_S, MOST_CASES = 4.0, 4
# Cases beyond this many bytes or FLOPs are not even prepared.
MOST_WORK = 4e8


@dataclass
class EmulatedChecks(Checks):
    """Check the smallest cases of a problem, as many as end within seconds."""

    purposes: tuple[Purpose, ...] = (Purpose.TEST,)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def cases(self, purpose: Purpose) -> list[Case]:
        """Return the smallest case, and the next ones of little work."""
        first, *others = super().cases(purpose) or [None]
        if first is None:
            return []
        return [first, *(case for case in others if self.work(case) <= MOST_WORK)][:MOST_CASES]

    def work(self, case: Case) -> float:
        """Return the FLOPs and bytes of a case, 1 where they are not known."""
        work = self.problem.work(case)
        return 1.0 if work is None else sum(work.flops.values()) + work.bytes

    def all(self, process: CandidateProcess, progress: Callable[[str], None]) -> None:
        """Check cases while the next one is expected to end in time. Raises CandidateFailure."""
        for outcome, contents in self.contents:
            if self.outcomes and self._expected_s(outcome.case, contents) > FURTHER_S:
                continue
            progress(outcome.case.name)
            started = time.monotonic()
            self._check(process, outcome, contents)
            self.seconds.append((time.monotonic() - started, self.work(outcome.case) * len(contents)))

    def _expected_s(self, case: Case, contents: list[Content]) -> float:
        """Return how long a case takes if its time grows with its work from the last one's."""
        last_s, last_work = self.seconds[-1]
        return last_s * max(1.0, self.work(case) * len(contents) / last_work)


def check(
    request: BuildRequest,
    problem: Problem,
    oracle: OracleClient,
    setups: Setups,
    limits: Limits,
    rng: random.Random,
    cancel: Callable[[], bool] | None,
    progress: Callable[[str], None],
) -> list[CaseOutcome]:
    """Return the cases that were right in emulation.

    Raises NotCovered naming what the emulation lacks, and CandidateFailure with what the kernel does wrong.
    """
    artefact = emulation.build(request)
    checks = EmulatedChecks(problem, oracle, request.target, 1, limits, rng)
    arena = oracle.arena(CANDIDATE, checks.prepare())
    process = CandidateProcess(CANDIDATE, artefact, setups, arena, limits, 1, cancel)
    try:
        checks.all(process, progress)
    except CandidateFailure as failure:
        _explain(failure)
        raise
    finally:
        process.close()
        oracle.reset()
    return checks.outcomes


def _explain(failure: CandidateFailure) -> None:
    """Put what the emulation found into the failure. Raises NotCovered where it lacks something."""
    found = stopped(failure.reason)
    if found is None:
        failure.reason = f"emulation: {failure.reason}"
        return
    if found.status is None:
        raise emulation.NotCovered(found.text) from failure
    failure.status = Status(found.status)
    failure.reason = f"emulation: {found.text}"
