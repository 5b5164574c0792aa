"""Keep outputs of timed calls, judge some of them, and check that calls wrote where they should.

Which calls are judged is drawn after they were made, so that no side can know. The last call of a request is always
among those it is drawn from.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from runners.errors import CANDIDATE, CandidateFailure
from runners.harness.memory.contents import Content
from runners.harness.memory.staging import StagedCall, check_begun, check_untouched
from runners.harness.oracle.client import Judgement, OracleClient
from runners.harness.processes.participant import CandidateProcess
from runners.harness.timing.measurements import CaseSession
from runners.harness.timing.plan import Plan
from runners.job import Status

# How much to keep of one case's outputs for the checks at its end.
SNAPSHOT_BYTES = 1 << 30
# Outputs of at least this size are judged at once instead of being kept.
LARGE_OUTPUT_BYTES = 256 << 20
MOST_LOOKED_AT = 3


@dataclass(frozen=True)
class Kept:
    """Hold the outputs of a timed call. `drawn` ones were chosen at random from their request; others were its last."""

    content: Content
    places: list[int]
    drawn: bool


class TimedOutputs:
    """Judge outputs of one case's timed calls in one session, and note in the session what was found."""

    def __init__(
        self, oracle: OracleClient, session: CaseSession, plan: Plan, rng: random.Random, *, is_first: bool
    ) -> None:
        self._oracle, self._session, self._plan, self._rng = oracle, session, plan, rng
        self._is_first = is_first
        self._kept: dict[str, list[Kept]] = defaultdict(list)
        self._keeps, self._surely_kept = False, 0

    def begin(self, fewest_units: int) -> None:
        """Draw a unit whose outputs are kept in any case, among those that are surely timed."""
        self._surely_kept = self._rng.randrange(fewest_units)

    def draw(self, unit: int, content: Content) -> None:
        """Draw whether the outputs of the unit's coming requests are kept."""
        self._keeps = unit == self._surely_kept or self._rng.random() < self._share_kept(content)

    def take(self, side: CandidateProcess, calls: list[StagedCall], call_s: float) -> None:
        """Keep outputs of a request's last call and of a random one, and check guards and inputs.

        Raises CandidateFailure if the candidate is wrong.
        """
        if self._keeps and len(calls) == 1 and _outputs_bytes(calls[0].content) >= LARGE_OUTPUT_BYTES:
            side.release()  # judging takes as much memory as the call did
        self._keep(side, calls[-1], drawn=False)
        if len(calls) > 1:
            side.store(call_s * len(calls))
        self._keep(side, self._rng.choice(calls), drawn=True)
        self._look(side, self._looked_at(calls))

    def check(self) -> None:
        """Judge the last call of one request and a random call of a few, the requests drawn after the last one.

        Each opponent is judged on the first of them, whose contents every side had.
        """
        kept = [kept for kept in self._kept[CANDIDATE] if kept.places]
        last, drawn = ([one for one in kept if one.drawn is wanted] for wanted in (False, True))
        if not last or self._plan.checks == 0:
            return
        first = self._rng.choice(last)
        for one in (first, *self._rng.sample(drawn, min(self._plan.checks, len(drawn)))):
            self._record(CANDIDATE, self._oracle.judge(one.content, one.places, timed=True))
        for name in self._kept:
            theirs = [one.places for one in self._kept[name] if one.content is first.content]
            if name != CANDIDATE and theirs:
                self._record(name, self._oracle.judge(first.content, theirs[0], timed=True))

    def _looked_at(self, calls: list[StagedCall]) -> list[StagedCall]:
        """Return the calls of a request whose guards and inputs are checked.

        On a GPU these are a few, drawn after they were made, since checking each takes longer than making it.
        """
        if not self._oracle.on_gpu or len(calls) <= MOST_LOOKED_AT:
            return calls
        return self._rng.sample(calls, MOST_LOOKED_AT)

    def _look(self, side: CandidateProcess, calls: list[StagedCall]) -> None:
        """Check guards, inputs and outputs of calls.

        All sides are treated alike between their blocks, because what the referee reads leaves its mark in the caches
        of the next side.
        """
        try:
            check_untouched(side.arena, calls)
            check_begun(side.arena, calls)
        except CandidateFailure as failure:
            if side.name == CANDIDATE:
                raise
            self._session.opponent_errors.setdefault(side.name, failure.reason)

    def _share_kept(self, content: Content) -> float:
        """Return the share of the units whose outputs are kept, so that large ones fit into memory.

        It is drawn for all sides alike, so that opponents are judged on the same contents; a candidate cannot know.
        """
        outputs = _outputs_bytes(content)
        if outputs >= LARGE_OUTPUT_BYTES:
            return 0.0
        return SNAPSHOT_BYTES / max(1, 8 * self._plan.units * len(self._session.sides) * outputs)

    def _keep(self, side: CandidateProcess, call: StagedCall, *, drawn: bool) -> None:
        """Remember a call's outputs for the checks at the end, if those of this unit are kept."""
        if not self._keeps:
            return
        if _outputs_bytes(call.content) >= LARGE_OUTPUT_BYTES:
            self._judge_large(side, call)
            return
        kept = self._oracle.keep(side.arena, call.content, call.outputs)
        self._kept[side.name].append(Kept(call.content, kept, drawn))

    def _judge_large(self, side: CandidateProcess, call: StagedCall) -> None:
        """Judge outputs that are too large to be kept: the first of each side, for opponents in the first session
        only."""
        if self._kept[side.name] or not (self._is_first or side.name == CANDIDATE):
            return
        places = self._oracle.keep(side.arena, call.content, call.outputs)
        self._kept[side.name].append(Kept(call.content, [], drawn=False))
        judgement = self._oracle.judge(call.content, places, timed=True)
        self._oracle.drop(places)
        self._record(side.name, judgement)

    def _record(self, name: str, judgement: Judgement) -> None:
        """Note a judgement. Raises CandidateFailure if the candidate is wrong."""
        if name != CANDIDATE:
            if judgement.error:
                self._session.opponent_errors[name] = judgement.error
            return
        self._session.judgements.append(judgement)
        if judgement.error:
            reason = f"wrong in a timed call: {judgement.error}"
            raise CandidateFailure(Status.INCORRECT, reason, self._session.case.name)


def _outputs_bytes(content: Content) -> int:
    return sum(output.size_bytes for output in content.outputs)
