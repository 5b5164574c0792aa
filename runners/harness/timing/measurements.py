"""Hold the times of one case in one session, by side, and compare them unit by unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from runners.errors import CANDIDATE
from runners.harness.oracle.client import Judgement
from runners.harness.timing.statistics import TimedRequest, referee_us, unaccounted_us, unit_log_ratio
from runners.job import Objective
from runners.problems.base import Case

# What the referee's clock does not resolve of one request.
CLOCK_US = 25.0


@dataclass
class Series:
    """Hold times of one kind.

    `samples_us` is by call, `blocks` holds the blocks' medians in µs by unit, `requests` serves to compare the
    clocks.
    """

    samples_us: list[float] = field(default_factory=list)
    blocks: list[list[float]] = field(default_factory=list)
    requests: list[TimedRequest] = field(default_factory=list)


@dataclass
class SideTimes:
    """Hold the times of one side of a case in one session: `device` time (on a CPU the only one) and `call` time.

    `busy_us` and `enqueue_us` are as in `RequestTimes`, per held call. `waits` says why the device could not be held,
    "" if it could. `overwrites` says whether calls return the same memory each time.
    """

    device: Series = field(default_factory=Series)
    call: Series = field(default_factory=Series)
    busy_us: list[float] = field(default_factory=list)
    enqueue_us: list[float] = field(default_factory=list)
    waits: str = ""
    overwrites: bool = False

    def of(self, basis: Objective) -> Series:
        """Return the times that a verdict on that basis compares."""
        return self.call if basis is Objective.CALL else self.device


@dataclass
class CaseSession:
    """Hold one case in one session, by side, with the judgements on the candidate's timed calls and the opponents'
    errors."""

    case: Case
    sides: dict[str, SideTimes]
    judgements: list[Judgement] = field(default_factory=list)
    opponent_errors: dict[str, str] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Return whether every side's device time is free of the host."""
        return self.holds(*self.sides)

    def holds(self, *names: str) -> bool:
        """Return whether the device time of these sides is free of the host."""
        return not any(self.sides[name].waits for name in names)

    def unit_ratios(self, opponent: str, basis: Objective) -> list[float]:
        """Return the log-ratio of each unit against that opponent."""
        pairs = zip(self.sides[opponent].of(basis).blocks, self.sides[CANDIDATE].of(basis).blocks, strict=True)
        return [unit_log_ratio(theirs, ours) for theirs, ours in pairs]

    def referee_ratios(self, opponent: str, basis: Objective) -> list[float]:
        """Return the log-ratios by the referee's clock.

        They exclude what a request to the opponent costs besides its calls, and CLOCK_US in the candidate's favour.
        """
        opponents, candidates = (self.sides[name].of(basis).requests for name in (opponent, CANDIDATE))
        overhead_us = unaccounted_us(opponents)
        theirs = [referee_us(request, overhead_us) for request in opponents]
        ours = [referee_us(request, overhead_us + CLOCK_US) for request in candidates]
        units = zip(_in_pairs(theirs), _in_pairs(ours), strict=True)
        return [unit_log_ratio(one, other) for one, other in units]


def _in_pairs(times: list[float]) -> list[list[float]]:
    """Group block times by unit: two blocks each."""
    return [times[n : n + 2] for n in range(0, len(times), 2)]
