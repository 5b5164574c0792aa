"""Run the correctness phase: every test and hidden case, several distributions and seeds, in one candidate process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from runners.errors import CandidateFailure, InfraFailure
from runners.harness.memory.contents import Content
from runners.harness.memory.staging import StagedCall, arena_bytes, case_layout, check_untouched, stage
from runners.harness.oracle.client import Judgement, OracleClient
from runners.harness.processes.participant import CandidateProcess
from runners.job import Limits, Status
from runners.problems.base import Case, Problem, Purpose

# Calls with larger buffers are repeated in a request of their own.
LARGE_CALL_BYTES = 1 << 30
# A process that has held more of a device's memory than this gives back what it keeps before the oracle judges.
HELD_BYTES = 256 << 20


@dataclass
class CaseOutcome:
    """Hold what the checks saw of one case."""

    case: Case
    hidden: bool
    error: str | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    deterministic: bool = True

    def record(self, judgement: Judgement) -> None:
        """Keep the largest errors."""
        self.max_abs_error = max(self.max_abs_error or 0.0, judgement.max_abs_error)
        self.max_rel_error = max(self.max_rel_error or 0.0, judgement.max_rel_error)


@dataclass
class Checks:
    """Plan and run the correctness phase. `outcomes` holds the cases run so far, in order."""

    problem: Problem
    oracle: OracleClient
    target: str
    seeds: int
    limits: Limits
    rng: random.Random
    purposes: tuple[Purpose, ...] = (Purpose.TEST, Purpose.HIDDEN)
    outcomes: list[CaseOutcome] = field(default_factory=list)
    contents: list[tuple[CaseOutcome, list[Content]]] = field(default_factory=list)
    _held_bytes: int = 0

    def prepare(self) -> int:
        """Make all inputs, and return the arena size that one call, or one repeated call, needs at a time."""
        for purpose in self.purposes:
            for case in self.cases(purpose):
                outcome = CaseOutcome(case, purpose is Purpose.HIDDEN)
                self.contents.append((outcome, self._contents(case)))
        if not self.contents:
            raise InfraFailure(f"{self.problem.name} has no test case for {self.target}")
        return max(arena_bytes(content, _at_once(content)) for _, contents in self.contents for content in contents)

    def cases(self, purpose: Purpose) -> list[Case]:
        """Return the cases to check, smallest first."""
        return self.problem.cases(self.target, purpose)

    def smallest(self, process: CandidateProcess) -> None:
        """Make the first call of the smallest case alone. Raises CandidateFailure."""
        outcome, contents = self.contents[0]
        self._check(process, outcome, contents[:1])

    def all(self, process: CandidateProcess, progress: Callable[[str], None]) -> None:
        """Check every call that `smallest` has not. Raises CandidateFailure at the first that fails."""
        for outcome, contents in self.contents:
            progress(outcome.case.name)
            if left := contents[1:] if outcome in self.outcomes else contents:
                self._check(process, outcome, left)

    def _contents(self, case: Case) -> list[Content]:
        first, *others = self.oracle.distributions(case)
        made = self.oracle.make(case, first, self.seeds)
        return made + [content for other in others for content in self.oracle.make(case, other)]

    def _check(self, process: CandidateProcess, outcome: CaseOutcome, contents: list[Content]) -> None:
        if outcome not in self.outcomes:
            self.outcomes.append(outcome)
        process.set_case(case_layout(self.problem, contents[0]), outcome.case)
        for number, content in enumerate(contents):
            try:
                self._check_content(process, outcome, content, repeat=number == 0)
            except CandidateFailure as failure:
                failure.case = outcome.case.name
                outcome.error = f"{failure.reason} (inputs: {content.distribution})"
                failure.reason = outcome.error
                raise

    def _check_content(
        self, process: CandidateProcess, outcome: CaseOutcome, content: Content, *, repeat: bool
    ) -> None:
        calls = stage(process.arena, [content] * (_at_once(content) if repeat else 1), self.rng)
        process.run([call.message for call in calls], self.limits.call_s * len(calls))
        kept = self.oracle.keep(process.arena, content, calls[-1].outputs)
        process.store(self.limits.call_s * len(calls))
        # The outputs were snapshot before, while the process stood still, so it can't change them after it has seen the
        # check.
        check_untouched(process.arena, calls)
        if repeat or self._held_bytes > HELD_BYTES:
            self._release(process)
        judgement = self.oracle.judge(content, kept)
        if judgement.error:
            raise CandidateFailure(Status.INCORRECT, judgement.error)
        outcome.record(judgement)
        if repeat and len(calls) == 1:
            outcome.deterministic = self._repeats(process, content, calls[0])
        elif repeat and not self._same(process, calls):
            outcome.deterministic = False
            self._judge_first(process, content, calls[0])

    def _repeats(self, process: CandidateProcess, content: Content, first: StagedCall) -> bool:
        """Make a large call once more and return whether its outputs are the same, by digests.

        Both calls' outputs at once would take too much of a device's memory. Raises CandidateFailure where the second
        is wrong.
        """
        before = process.arena.digest(_outputs(first))
        self._release(process)
        (second,) = stage(process.arena, [content], self.rng)
        process.run([second.message], self.limits.call_s)
        self._release(process)
        if process.arena.digest(_outputs(second)) == before:
            return True
        self._judge_first(process, content, second)
        return False

    def _release(self, process: CandidateProcess) -> None:
        """Have a process on a GPU give back what its allocator keeps, and note how much it has held so far."""
        if self.oracle.on_gpu:
            self._held_bytes = process.release()

    def _same(self, process: CandidateProcess, calls: list[StagedCall]) -> bool:
        first, second = calls
        sizes = [output.size_bytes for output in first.content.outputs]
        return process.arena.same(list(zip(first.outputs, second.outputs, sizes, strict=True)))

    def _judge_first(self, process: CandidateProcess, content: Content, call: StagedCall) -> None:
        judgement = self.oracle.judge(content, self.oracle.keep(process.arena, content, call.outputs))
        if judgement.error:
            raise CandidateFailure(Status.INCORRECT, f"differs from call to call: {judgement.error}")


def _at_once(content: Content) -> int:
    """Return how many calls of a content to make in a request that repeats it: large ones follow each other."""
    return 1 if sum(content.buffer_sizes) > LARGE_CALL_BYTES else 2


def _outputs(call: StagedCall) -> list[tuple[int, int]]:
    """Return the offset and size of each output."""
    sizes = [output.size_bytes for output in call.content.outputs]
    return list(zip(call.outputs, sizes, strict=True))
