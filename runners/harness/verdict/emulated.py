"""Check a kernel in emulation, where its device is absent: on the smallest test cases, against the ordinary oracle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runners import emulation
from runners.backends import BuildRequest
from runners.emulation.report import notes, stopped
from runners.errors import CANDIDATE, CandidateFailure
from runners.harness.memory.contents import Content, Setups
from runners.harness.oracle.client import OracleClient
from runners.harness.processes.participant import CandidateProcess
from runners.harness.verdict.checks import CaseOutcome, Checks
from runners.job import Limits
from runners.problems.base import Case, Problem, Purpose

# Most cases; the bytes and FLOPs that a scalar kernel works through in about a second; and beyond that, the seconds in
# which a case must be expected to end.
MOST_CASES, LITTLE_WORK, FURTHER_S = 4, 3e7, 4.0
# Cases beyond this many bytes and FLOPs are not even prepared.
MOST_WORK = 4e8


@dataclass
class EmulatedChecks(Checks):
    """Check the smallest cases of a problem, as many as end within seconds."""

    purposes: tuple[Purpose, ...] = (Purpose.TEST,)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def cases(self, purpose: Purpose) -> list[Case]:
        """Return the smallest case, and the next ones of little work."""
        every = super().cases(purpose)
        return every[:1] + [case for case in every[1:MOST_CASES] if self.work(case) <= MOST_WORK]

    def work(self, case: Case) -> float:
        """Return the FLOPs and bytes of a case, 1 where they are not known."""
        work = self.problem.work(case)
        return 1.0 if work is None else sum(work.flops.values()) + work.bytes

    def all(self, process: CandidateProcess, progress: Callable[[str], None]) -> None:
        """Check cases while the next one is expected to end in time. Raises CandidateFailure."""
        for outcome, contents in self.contents:
            if self.outcomes and not self._is_short(outcome.case, contents):
                continue
            progress(outcome.case.name)
            started = time.monotonic()
            self._check(process, outcome, contents)
            self.seconds.append((time.monotonic() - started, self.work(outcome.case) * len(contents)))

    def _is_short(self, case: Case, contents: list[Content]) -> bool:
        """Return whether a case has little work, or ends soon if its time grows with its work from the last one's."""
        last_s, last_work = self.seconds[-1]
        expected_s = last_s * self.work(case) * len(contents) / last_work
        return self.work(case) <= LITTLE_WORK or expected_s <= FURTHER_S


@dataclass(frozen=True)
class Emulated:
    """Hold the cases that were right, the sandbox's level in which the kernel ran, and what the emulation noticed."""

    outcomes: list[CaseOutcome]
    level: str
    notes: list[str]


def check(
    request: BuildRequest,
    problem: Problem,
    oracle: OracleClient,
    setups: Setups,
    limits: Limits,
    rng: random.Random,
    cancel: Callable[[], bool] | None,
    progress: Callable[[str], None],
) -> Emulated:
    """Check a kernel in emulation and return what was right.

    Raises NotCovered naming what the emulation lacks, and CandidateFailure with what the kernel does wrong.
    """
    artefact = emulation.build(request)
    checks = EmulatedChecks(problem, oracle, request.target, 1, limits, rng)
    arena = oracle.arena(CANDIDATE, checks.prepare())
    process = CandidateProcess(CANDIDATE, artefact, setups, arena, limits, 1, cancel)
    try:
        checks.all(process, progress)
    except CandidateFailure as failure:
        process.close()
        _explain(failure, process.log())
        raise
    finally:
        process.close()
        oracle.reset()
    return Emulated(checks.outcomes, process.level, notes(process.log()))


def _explain(failure: CandidateFailure, log: str) -> None:
    """Put what the emulation found into the failure. Raises NotCovered where it lacks something."""
    found = stopped(failure.reason)
    if found is not None and found.status is None:
        raise emulation.NotCovered(found.text) from failure
    if found is not None and found.status is not None:
        failure.status = found.status
    told = [failure.reason if found is None else found.text, *notes(log)]
    failure.reason = f"emulation: {'; '.join(told)}"
