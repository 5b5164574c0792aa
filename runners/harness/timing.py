"""Paired, interleaved timing of a candidate and its opponents on one case within one session.

A session is one fresh process per side. Within it, units of blocks in palindromic random order (A B B A) alternate
between K and 2K calls a block, so that the referee's clock can be compared with the inside clock (see `statistics`).
Every timed call has content that its process has not seen before, at addresses that change. Which of the timed calls
are checked is drawn after they were made; the last of a request is always among them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from statistics import median

from runners.harness.contents import Content, Judgement, OracleClient
from runners.harness.errors import CandidateFailure
from runners.harness.participant import Participant, Run
from runners.harness.staging import StagedCall, case_layout, check_begun, check_untouched, stage
from runners.harness.statistics import TimedRequest, referee_us, unaccounted_us, unit_log_ratio, usable
from runners.job import Status
from runners.problems.base import Case, Problem

CANDIDATE = "candidate"
SNAPSHOT_BYTES = 8 << 30
"""How much to keep of one case's outputs for the checks at its end."""
CLOCK_US = 25.0
"""What the referee's clock does not resolve of one request."""


@dataclass(frozen=True)
class Plan:
    """How much to measure: sessions (fresh processes), units per session and case, how long a block should take, most
    calls in a block, and most bytes of fresh contents to make per session and case."""

    sessions: int
    units: int
    block_us: float
    most_calls: int
    content_bytes: int
    checks: int = 2

    def on_gpu(self) -> Plan:
        """With more calls a request, which share what it costs besides: calls are short there, the referee's clock must
        resolve them still, and contents that the device makes itself cost next to nothing."""
        return replace(self, most_calls=max(16, self.most_calls), content_bytes=4 << 30)


QUICK = Plan(sessions=1, units=4, block_us=1_500, most_calls=8, content_bytes=64 << 20, checks=1)
FULL = Plan(sessions=3, units=8, block_us=6_000, most_calls=16, content_bytes=768 << 20)
CONFIRM = Plan(sessions=5, units=10, block_us=10_000, most_calls=16, content_bytes=1 << 30)


@dataclass
class SideTimes:
    """What one side of a case took in one session. `blocks` are medians in µs by unit; on a GPU, `busy_us` and
    `around_us` are as in `Run`, per call."""

    samples_us: list[float] = field(default_factory=list)
    blocks: list[list[float]] = field(default_factory=list)
    requests: list[TimedRequest] = field(default_factory=list)
    busy_us: list[float] = field(default_factory=list)
    around_us: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Kept:
    """Outputs of a timed call. `drawn`: at random from its request; else it was the request's last."""

    content: Content
    places: list[int]
    drawn: bool


@dataclass
class CaseSession:
    """One case in one session, by side; `judgements` on timed calls of the candidate, with the opponents' errors."""

    case: Case
    sides: dict[str, SideTimes]
    judgements: list[Judgement] = field(default_factory=list)
    opponent_errors: dict[str, str] = field(default_factory=dict)

    def unit_ratios(self, opponent: str) -> list[float]:
        """Log-ratio of each unit against that opponent."""
        pairs = zip(self.sides[opponent].blocks, self.sides[CANDIDATE].blocks, strict=True)
        return [unit_log_ratio(theirs, ours) for theirs, ours in pairs]

    def referee_ratios(self, opponent: str) -> list[float]:
        """The same by the referee's clock, less what a request to the (trusted) opponent costs besides its calls,
        and less CLOCK_US in the candidate's favour."""
        overhead_us = unaccounted_us(self.sides[opponent].requests)
        theirs = [referee_us(request, overhead_us) for request in self.sides[opponent].requests]
        ours = [referee_us(request, overhead_us + CLOCK_US) for request in self.sides[CANDIDATE].requests]
        units = zip(_in_pairs(theirs), _in_pairs(ours), strict=True)
        return [unit_log_ratio(opponents, candidates) for opponents, candidates in units]


def _in_pairs(times: list[float]) -> list[list[float]]:
    """The two blocks of each unit."""
    return [times[n : n + 2] for n in range(0, len(times), 2)]


class CaseTimer:
    """Measures one case with the processes of one session."""

    def __init__(
        self,
        problem: Problem,
        oracle: OracleClient,
        sides: list[Participant],
        case: Case,
        plan: Plan,
        call_s: float,
        rng: random.Random,
    ) -> None:
        self._problem, self._oracle, self._sides = problem, oracle, sides
        self._case, self._plan, self._call_s, self._rng = case, plan, call_s, rng
        self._distribution = case.distributions[0]
        self._result = CaseSession(case, {side.name: SideTimes() for side in sides})
        self._kept: dict[str, list[Kept]] = {side.name: [] for side in sides}
        self._keeps, self._surely_kept = False, 0

    def measure(self) -> CaseSession:
        """Warm up, choose the block size, time all units. Raises CandidateFailure."""
        try:
            calls = self._warm_up()
            self._surely_kept = self._rng.randrange(self._plan.units)
            for unit in range(self._plan.units):
                self._time_unit(unit, calls * (1 + unit % 2))
            self._discount_surroundings()
            self._check()
        except CandidateFailure as failure:
            failure.case = failure.case or self._case.name
            raise
        return self._result

    def _warm_up(self) -> int:
        first = self._make(1)
        for side in self._sides:
            side.set_case(case_layout(self._problem, first[0]), self._case)
            self._request(side, first)
        second = self._make(self._affordable(first[0], 2))
        per_call = [median(self._request(side, second)[1].inside_us) for side in self._sides]
        for kept in self._kept.values():
            kept.clear()  # what is judged is what was timed
        wanted = self._plan.block_us / max(1.0, sum(per_call) / len(per_call))
        return self._affordable(first[0], max(1, min(self._plan.most_calls, round(wanted))))

    def _affordable(self, content: Content, calls: int) -> int:
        needed = sum(content.buffer_sizes) * 3 * self._plan.units
        return max(1, min(calls, self._plan.content_bytes // max(1, needed)))

    def _make(self, count: int) -> list[Content]:
        return self._oracle.make(self._case, self._distribution, count)

    def _time_unit(self, unit: int, calls: int) -> None:
        contents = self._make(2 * calls)
        halves = [contents[:calls], contents[calls:]]
        self._keeps = unit == self._surely_kept or self._rng.random() < self._share_kept(contents[0])
        order = self._rng.sample(self._sides, len(self._sides))
        blocks: dict[str, list[float]] = {side.name: [] for side in self._sides}
        for half, sides in zip(halves, (order, order[::-1]), strict=True):
            for side in sides:
                blocks[side.name].append(self._block(side, half))
        for name, medians in blocks.items():
            self._result.sides[name].blocks.append(medians)

    def _block(self, side: Participant, contents: list[Content]) -> float:
        calls, run = self._request(side, contents)
        times = self._result.sides[side.name]
        if not usable(run.inside_us):
            raise CandidateFailure(Status.SUSPECT, "reported a time that is zero, negative or not finite")
        times.samples_us += run.inside_us
        times.busy_us += run.busy_us
        times.around_us += run.around_us
        times.requests.append(TimedRequest(len(calls), sum(run.inside_us), run.outside_us))
        return median(run.inside_us)

    def _discount_surroundings(self) -> None:
        """On a GPU, emptying the caches before each call and waiting for the device lie outside its events. What that
        takes of a trusted opponent is taken off everybody's requests; a candidate that waits longer keeps the rest."""
        around = [
            side.around_us for name, side in self._result.sides.items() if name != CANDIDATE and side.around_us
        ]
        if not around:
            return
        trusted_us = median(around[0])
        for side in self._result.sides.values():
            side.requests = [
                TimedRequest(r.calls, r.inside_us, r.outside_us - r.calls * trusted_us) for r in side.requests
            ]

    def _request(self, side: Participant, contents: list[Content]) -> tuple[list[StagedCall], Run]:
        """Stage, run, keep outputs for the checks, look at guards and inputs of every call."""
        calls = stage(side.arena, contents, self._rng)
        timeout_s = self._call_s * len(calls)
        run = side.run([call.message for call in calls], timeout_s)
        self._keep(side, calls[-1], drawn=False)
        side.store(timeout_s)
        self._keep(side, self._rng.choice(calls), drawn=True)
        self._look(side, calls)
        return calls, run

    def _look(self, side: Participant, calls: list[StagedCall]) -> None:
        """Guards, inputs and outputs of every call. All sides are treated alike between their blocks: what the referee
        reads leaves its mark in the caches of whoever comes next."""
        try:
            check_untouched(side.arena, calls)
            check_begun(side.arena, calls)
        except CandidateFailure as failure:
            if side.name == CANDIDATE:
                raise
            self._result.opponent_errors.setdefault(side.name, failure.reason)

    def _share_kept(self, content: Content) -> float:
        """Share of the units whose outputs are kept, so that large ones fit into memory. Drawn for all sides alike, so
        that opponents are judged on the same contents; a candidate cannot know."""
        outputs = sum(output.size_bytes for output in content.outputs)
        return SNAPSHOT_BYTES / max(1, 8 * self._plan.units * len(self._sides) * outputs)

    def _keep(self, side: Participant, call: StagedCall, *, drawn: bool) -> None:
        """Remember a call's outputs for the checks at the end, if those of this unit are kept."""
        if not self._keeps:
            return
        kept = self._oracle.keep(side.arena, call.content, call.outputs)
        self._kept[side.name].append(Kept(call.content, kept, drawn))

    def _check(self) -> None:
        """Judge the last call of one request and a random call of a few, the requests drawn after the last one; and
        each opponent on the first of them, whose contents were everybody's."""
        last, drawn = ([kept for kept in self._kept[CANDIDATE] if kept.drawn is wanted] for wanted in (False, True))
        if not last or self._plan.checks == 0:
            return
        first = self._rng.choice(last)
        for kept in (first, *self._rng.sample(drawn, min(self._plan.checks, len(drawn)))):
            self._record(CANDIDATE, self._oracle.judge(kept.content, kept.places))
        for name in self._kept:
            theirs = [kept.places for kept in self._kept[name] if kept.content is first.content]
            if name != CANDIDATE and theirs:
                self._record(name, self._oracle.judge(first.content, theirs[0]))

    def _record(self, name: str, judgement: Judgement) -> None:
        if name != CANDIDATE:
            if judgement.error:
                self._result.opponent_errors[name] = judgement.error
            return
        self._result.judgements.append(judgement)
        if judgement.error:
            raise CandidateFailure(Status.INCORRECT, f"wrong in a timed call: {judgement.error}", self._case.name)
