"""Timing sessions: fresh processes per side, all benchmark cases, and what the numbers of all sessions say together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from runners.backends.base import Artefact
from runners.harness import staging
from runners.harness.baselines import Baselines
from runners.harness.contents import Content, OracleClient, Setups
from runners.harness.errors import CandidateFailure, InfraFailure
from runners.harness.participant import BaselineProcess, CandidateProcess, Participant, thread_count
from runners.harness.spares import Spares
from runners.harness.statistics import Interval, clocks_agree, median_interval, speedup, spread_us
from runners.harness.timing import CANDIDATE, CaseSession, CaseTimer, Plan
from runners.harness.zygote import Zygote
from runners.job import Baseline, Limits, ProblemBundle, Status
from runners.problems.base import Case, Problem

BASELINE = "baseline"
PARENT = "parent"
AT_ONCE_BYTES = 1 << 30
"""Sessions whose processes have more memory in their arenas start one after the other, and end at once."""


@dataclass
class Timings:
    """Sessions by case name, in the order of the problem's cases."""

    sessions: dict[str, list[CaseSession]] = field(default_factory=dict)

    def samples(self, case: str, side: str) -> list[float]:
        """All samples of one side, µs."""
        return [sample for session in self.sessions[case] for sample in session.sides[side].samples_us]

    def time(self, case: str, side: str, rng: random.Random) -> Interval:
        """Median time of one side in µs, with its interval, from the blocks' medians."""
        blocks = [[median(unit) for unit in s.sides[side].blocks] for s in self.sessions[case]]
        return median_interval(blocks, rng)

    def case_speedup(self, case: str, opponent: str, rng: random.Random) -> Interval:
        """Speedup on one case."""
        return speedup([self._units(case, opponent)], rng)

    def speedup(self, opponent: str, rng: random.Random) -> Interval:
        """Geometric mean over all cases."""
        return speedup([self._units(case, opponent) for case in self.sessions], rng)

    def clocks_agree(self, case: str, *, strictly: bool) -> bool:
        """In most sessions, does the referee's clock agree with the candidate's? Not strictly, what load makes of the
        baseline's own requests is allowed for: then nobody is accused of it, but nothing is shown either."""
        pairs = [(s.sides[CANDIDATE].requests, s.sides[BASELINE].requests) for s in self.sessions[case]]
        agreed = [
            clocks_agree(ours, trusted, slack_us=0.0 if strictly else spread_us(trusted)) for ours, trusted in pairs
        ]
        return sum(agreed) * 2 > len(agreed)

    def busy_beyond_events_us(self, case: str, opponent: str) -> float:
        """On a GPU: how much longer the candidate keeps the device busy after its last event than the opponent does, in
        µs per call; 0 elsewhere. Work on a stream that the events do not see shows here."""
        sides = [session.sides for session in self.sessions[case]]
        if not sides[0][CANDIDATE].busy_us:
            return 0.0
        return median([median(s[CANDIDATE].busy_us) - median(s[opponent].busy_us) for s in sides])

    def referee_speedup(self, opponent: str, rng: random.Random, case: str | None = None) -> Interval:
        """The speedup on one case, or over all, by the referee's clock alone."""
        chosen = self.sessions.values() if case is None else [self.sessions[case]]
        return speedup([[s.referee_ratios(opponent) for s in many] for many in chosen], rng)

    def overstates(self, case: str, rng: random.Random) -> bool:
        """Does the candidate claim more than the referee's clock saw, by both of its signs: time in the requests that
        nobody accounts for, and the paired ratios of whole requests?"""
        if self.clocks_agree(case, strictly=False):
            return False
        claimed = self.case_speedup(case, BASELINE, rng)
        return claimed.median > self.referee_speedup(BASELINE, rng, case).high

    def opponent_errors(self, opponent: str) -> list[str]:
        """What was wrong with the opponent's outputs, by case."""
        found = [(s.case.name, s.opponent_errors.get(opponent)) for many in self.sessions.values() for s in many]
        return [f"{name}: {error}" for name, error in found if error]

    def _units(self, case: str, opponent: str) -> list[list[float]]:
        return [session.unit_ratios(opponent) for session in self.sessions[case]]


@dataclass
class Bench:
    """Everything needed to start the sides of a session. `spares` and `baselines`: processes started ahead. `at_once`:
    candidates may make their first calls, in which they compile, at the same time."""

    problem: Problem
    bundle: ProblemBundle
    oracle: OracleClient
    zygote: Zygote
    cases: list[Case]
    setups: Setups
    limits: Limits
    rng: random.Random
    cancel: Callable[[], bool] | None
    spares: Spares | None = None
    baselines: Baselines | None = None
    at_once: bool = False
    _checked: Participant | None = None
    _waiting: list[list[Participant]] = field(default_factory=list)
    _dismissed: list[Participant] = field(default_factory=list)

    def for_checks(
        self, plan: Plan, artefact: Artefact, prepare: Callable[[], int]
    ) -> tuple[CandidateProcess, bool]:
        """A fresh process for the checks, the least size of whose arena `prepare` tells, and whether it may measure in
        the first session of that plan afterwards: on a GPU, where opening the device takes each process a tenth of a
        second, unless its arena would be large."""
        timed_bytes = self.arena_bytes(plan) if self.oracle.on_gpu and self.cases else 0
        least_bytes = prepare()
        size = max(least_bytes, timed_bytes)
        stays = bool(timed_bytes) and size <= AT_ONCE_BYTES
        return self.candidate(CANDIDATE, artefact, size if stays else least_bytes), stays

    def keep(self, checked: Participant) -> None:
        """A candidate that came through the checks, for the first session."""
        self._checked = checked

    def start_ahead(self, plan: Plan, candidate: Artefact, baseline: Baseline, parent: Artefact | None) -> None:
        """Start the sides of all sessions of a plan, for `measure` to take: on a GPU, where they sit idle on cores that
        timing does not use, unless that takes much memory. Raises CandidateFailure, InfraFailure."""
        size = self.arena_bytes(plan)
        if not (self.oracle.on_gpu and size <= AT_ONCE_BYTES):
            return
        self._waiting = self._started(plan.sessions, candidate, baseline, parent, size)
        if self.at_once and candidate.kind == "module":
            self._make_first_calls([side for sides in self._waiting for side in sides])

    def measure(
        self,
        plan: Plan,
        candidate: Artefact,
        baseline: Baseline,
        parent: Artefact | None,
        progress: Callable[[str], None],
        at_end: Callable[[list[Participant]], None] = lambda sides: None,
    ) -> Timings:
        """All sessions of a plan; `at_end` is called with the sides of the last one. Raises CandidateFailure,
        InfraFailure, Cancelled."""
        timings = Timings({case.name: [] for case in self.cases})
        if not self._waiting:
            self.start_ahead(plan, candidate, baseline, parent)
        size = self.arena_bytes(plan)
        waiting, self._waiting = self._waiting, []
        try:
            for number in range(plan.sessions):
                progress(f"session {number + 1} of {plan.sessions}")
                if not waiting:
                    waiting = self._started(1, candidate, baseline, parent, size)
                self.session(plan, waiting[0], timings)
                if number == plan.sessions - 1:
                    at_end(waiting[0])
                self.dismiss(waiting.pop(0))
        finally:
            for sides in waiting:
                self.dismiss(sides)
        return timings

    def dismiss(self, sides: Sequence[Participant]) -> None:
        """Sides that are not needed any more. On a GPU, where closing its context takes a process a tenth of a second,
        small ones stand still until `close`."""
        for side in sides:
            if self.oracle.on_gpu and side.arena.size_bytes <= AT_ONCE_BYTES:
                self._dismissed.append(side)
            else:
                side.close()

    def close(self) -> None:
        """End whatever was dismissed, and what was started ahead and never measured."""
        for sides in (*self._waiting, [self._checked] if self._checked else []):
            self.dismiss(sides)
        self._waiting, self._checked = [], None
        dismissed, self._dismissed = self._dismissed, []
        if dismissed:
            with ThreadPoolExecutor(len(dismissed)) as threads:
                list(threads.map(_ended, dismissed))

    def _started(
        self, sessions: int, candidate: Artefact, baseline: Baseline, parent: Artefact | None, size: int
    ) -> list[list[Participant]]:
        """The sides of so many sessions, started at the same time: each takes seconds where torch is imported."""
        starts: list[Callable[[], Participant]] = []
        for _ in range(sessions):
            starts.append(self._taken() or self.start_candidate(CANDIDATE, candidate, size))
            starts.append(self.start_baseline(BASELINE, baseline, size))
            if parent is not None:
                starts.append(self.start_candidate(PARENT, parent, size))
        sides = started_together(starts)
        each = len(sides) // sessions
        return [sides[n : n + each] for n in range(0, len(sides), each)]

    def _taken(self) -> Callable[[], Participant] | None:
        """The candidate that was checked, if it is there; once."""
        checked, self._checked = self._checked, None
        return None if checked is None else lambda: checked

    def _make_first_calls(self, sides: list[Participant]) -> None:
        """One call of every case by every candidate, all at the same time: in their first calls modules compile."""
        candidates = [side for side in sides if isinstance(side, CandidateProcess)]
        for case in self.cases:
            content = self.oracle.make(case, case.distributions[0])[0]
            layout = staging.case_layout(self.problem, content)
            calls = [staging.stage(side.arena, [content], self.rng)[0].message for side in candidates]
            with ThreadPoolExecutor(len(candidates)) as threads:
                made = [
                    threads.submit(_first_call, side, layout, case, call, self.limits.call_s * len(candidates))
                    for side, call in zip(candidates, calls, strict=True)
                ]
            for call_made in made:
                call_made.result()
        self.oracle.reset()

    def session(self, plan: Plan, sides: list[Participant], timings: Timings) -> None:
        """One session: every case once, in random order, the sides at raised priority."""
        for side in sides:
            side.prioritise()
        for case in self.rng.sample(self.cases, len(self.cases)):
            timer = CaseTimer(self.problem, self.oracle, sides, case, plan, self.limits.call_s, self.rng)
            timings.sessions[case.name].append(timer.measure())
            self.oracle.reset()

    def candidate(self, name: str, artefact: Artefact, arena_size: int) -> CandidateProcess:
        """A fresh sandboxed process."""
        return self.start_candidate(name, artefact, arena_size)()

    def start_candidate(
        self, name: str, artefact: Artefact, arena_size: int, *, with_torch: bool = False
    ) -> Callable[[], CandidateProcess]:
        """The arena is made now, the process when the result is called, in whatever thread. `with_torch`: a spare, if
        there is one, for a kernel that does without otherwise."""
        arena = self.oracle.arena(name, arena_size)
        ahead = (
            self.spares.take_for(self.limits)
            if self.spares and (with_torch or artefact.kind == "module") and not artefact.env
            else None
        )
        return lambda: CandidateProcess(
            name, artefact, self.setups, arena, self.limits, thread_count(), self.cancel, ahead
        )

    def start_baseline(self, name: str, baseline: Baseline, arena_size: int) -> Callable[[], BaselineProcess]:
        """The same for a trusted child; from `baselines` where there are any."""
        arena = self.oracle.arena(name, arena_size)
        lent = self.baselines.take(self.bundle, baseline) if self.baselines else None
        return lambda: BaselineProcess(name, self.zygote, self.bundle, baseline, arena, self.cancel, lent)

    def arena_bytes(self, plan: Plan) -> int:
        """Size of an arena that serves every case under a plan."""
        sizes = [self._case_bytes(self.oracle.make(case, case.distributions[0])[0], plan) for case in self.cases]
        self.oracle.reset()
        return max(sizes)

    def _case_bytes(self, content: Content, plan: Plan) -> int:
        affordable = plan.content_bytes // max(1, 3 * plan.units * sum(content.buffer_sizes))
        return staging.arena_bytes(content, 2 * max(1, min(plan.most_calls, affordable)))


def _first_call(
    side: Participant, layout: dict[str, Any], case: Case, call: dict[str, Any], timeout_s: float
) -> None:
    """Have a side get ready for a case and make one call of it. Raises CandidateFailure with the case's name; memory
    that lacks for several at once proves nothing."""
    try:
        side.set_case(layout, case)
        side.run([call], timeout_s)
    except CandidateFailure as failure:
        if failure.status is Status.OUT_OF_MEMORY:
            return
        failure.case = failure.case or case.name
        raise


def started_together(starts: Sequence[Callable[[], Participant]]) -> list[Participant]:
    """Every participant, each started in a thread of its own, or the first failure after closing those that did."""
    with ThreadPoolExecutor(len(starts)) as threads:
        futures = [threads.submit(start) for start in starts]
    failure = next((error for future in futures if (error := future.exception())), None)
    if failure is None:
        return [future.result() for future in futures]
    for future in futures:
        if future.exception() is None:
            future.result().close()
    raise failure


def overall_us(timings: Timings) -> dict[str, float]:
    """The candidate's median by case, µs."""
    return {case: median(timings.samples(case, CANDIDATE)) for case in timings.sessions}


def _ended(side: Participant) -> None:
    """Close a side whose oracle may be gone already."""
    with suppress(InfraFailure):
        side.close()
