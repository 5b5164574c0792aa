"""Collect what an evaluation finds out, stage by stage, until it becomes the result."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runners.errors import CANDIDATE, CandidateFailure
from runners.harness.devices.neighbours import Neighbours
from runners.harness.memory.usage import MemoryWatch
from runners.harness.stages import Stages
from runners.harness.timing.sessions import Sides, Timings
from runners.harness.verdict.checks import CaseOutcome
from runners.job import AheadBuild, BuildReport, Failure, Flag, NoiseFloor, Speedup, Status


@dataclass
class Findings:
    """Hold what is known of a job so far.

    `failed_case` is a case with what was wrong in it. With `parent_is_baseline`, both have the same source, which is
    timed once.
    """

    status: Status = Status.INFRA_ERROR
    reasons: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    build: BuildReport | None = None
    ahead: list[AheadBuild] = field(default_factory=list)
    outcomes: list[CaseOutcome] = field(default_factory=list)
    failed_case: tuple[str, str] | None = None
    timings: Timings | None = None
    speedups: dict[str, Speedup] = field(default_factory=dict)
    call_speedup: Speedup | None = None
    floor: NoiseFloor | None = None
    parent_is_baseline: bool = False
    memory: MemoryWatch | None = None
    neighbours: Neighbours = field(default_factory=Neighbours)
    duplicate_of: str | None = None
    sandbox: str = ""
    profile: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)

    def note_opponent(self, side: str, stage: str, reason: str) -> None:
        """Note an opponent's failure, which drops its comparison and nothing else."""
        self.flags.append(Flag(f"{side}_failed"))
        self.failures.append(Failure(side, stage, reason))

    @contextmanager
    def opponents(self, stages: Stages, sides: Sides) -> Iterator[None]:
        """Note the failure of an opponent and go on without it. The candidate's own failures propagate."""
        try:
            yield
        except CandidateFailure as failure:
            if failure.side == CANDIDATE:
                raise
            self.note_opponent(failure.side, stages.current, failure.reason)
            del sides[failure.side]
