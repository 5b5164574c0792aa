"""Test how a case is timed on a GPU, with simulated processes whose true times are known.

A simulated call takes `device_us` on the device and `host_us` to be enqueued; in a loop it takes the longer of both.
Time passes on a clock of the test's own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from runners.errors import BASELINE, CANDIDATE, PARENT, CandidateFailure
from runners.harness.memory.arena import Arena, Piece
from runners.harness.memory.contents import Buffer, Content
from runners.harness.oracle.client import Judgement
from runners.harness.processes.participant import HOLD_S, RequestTimes
from runners.harness.timing import case_timer
from runners.harness.timing.case_timer import LONG_US, WARM_US, CaseTimer, Way
from runners.harness.timing.plan import FULL
from runners.harness.timing.sessions import Timings
from runners.harness.timing.statistics import Interval
from runners.harness.verdict.report import speedup_of
from runners.job import Flag, Objective, Status, Verdict
from runners.problems.base import Case, Purpose

CASE = Case("case", {}, Purpose.BENCHMARK, distributions=("normal",))
BYTES = 4096


class MemorylessArena(Arena):
    """Stand in for device memory in which nothing is ever wrong."""

    size_bytes, descriptor = 8 << 30, -1

    def lay(self, pieces: Sequence[Piece]) -> None:
        """Write nothing."""

    def first_difference(self, pieces: Sequence[Piece]) -> int | None:
        """Return that nothing has changed."""
        return None

    def same(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Return that all is the same."""
        return True

    def digest(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Return one digest for everything."""
        return ""

    def close(self) -> None:
        """Give nothing back."""


class Oracle:
    """Make contents without memory and accept every output."""

    on_gpu = True

    def __init__(self, output_bytes: int = BYTES) -> None:
        self.judged, self._output_bytes = 0, output_bytes

    def make(self, case: Case, distribution: str, count: int = 1) -> list[Content]:
        inputs: Any = {"x": Buffer({"name": "x"}, 0, BYTES, 0)}
        return [
            Content(n, case, distribution, inputs, [Buffer({}, -1, self._output_bytes, 0)]) for n in range(count)
        ]

    def keep(self, arena: Arena, content: Content, offsets: list[int]) -> list[int]:
        return [1]

    def judge(self, content: Content, kept: list[int], *, timed: bool = False) -> Judgement:
        self.judged += 1
        return Judgement(None, 0.0, 0.0)

    def drop(self, places: list[int]) -> None:
        """Keep nothing."""


class Clock:
    """Show simulated seconds."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@dataclass
class Side:
    """Simulate a participant. One that `fills_queue` cannot enqueue a call while the device is held.

    The first call of a loop takes `wake_us` longer, since the process has just been woken. A cheat says that the others
    took `claim_us` each.
    """

    name: str
    clock: Clock
    device_us: float
    host_us: float
    fills_queue: bool = False
    wake_us: float = 0.0
    claim_us: float | None = None
    arena: Arena = field(default_factory=MemorylessArena)
    overwrites: bool = False
    made: int = 0
    held: int = 0
    warmed_us: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.name)

    def pin(self, processors: set[int]) -> None:
        assert processors

    def release(self) -> int:
        return 0

    def set_case(self, layout: dict[str, Any], case: Case) -> None:
        """Need no layout."""

    def store(self, timeout_s: float) -> None:
        """Have no outputs."""

    def _passed(self, us: float, calls: int) -> float:
        self.made += calls
        self.clock.now_s += us / 1e6
        return us

    def _each_us(self, us: float, calls: int) -> list[float]:
        return [us * self.rng.gauss(1, 0.002) for _ in range(calls)]

    def run(self, messages: list[dict[str, Any]], timeout_s: float) -> RequestTimes:
        inside = self._each_us(max(self.device_us, self.host_us), len(messages))
        return RequestTimes(inside, self._passed(sum(inside), len(messages)) + 30.0)

    def run_held(
        self, messages: list[dict[str, Any]], timeout_s: float, patience_s: float = HOLD_S
    ) -> RequestTimes:
        self.held += 1
        inside = self._each_us(self.device_us, len(messages))
        count = len(messages)
        outside = self._passed(sum(inside), count) + 30.0 * count
        return RequestTimes(inside, outside, [5.0] * count, [self.host_us] * count, held=not self.fills_queue)

    def run_steadily(
        self, messages: list[dict[str, Any]], timeout_s: float, warm_us: float = 0.0, repeats: int = 0
    ) -> RequestTimes:
        call_us, others = max(self.device_us, self.host_us), len(messages) - 1 or repeats
        lead_in = 1 + (1 + int(warm_us // call_us) if warm_us else 0)
        times = [self.wake_us + lead_in * call_us, sum(self._each_us(call_us, others))]
        self.warmed_us = warm_us
        outside = self._passed(sum(times), lead_in + others) + 30.0
        if others and self.claim_us is not None:
            times = [sum(times) - self.claim_us * others, self.claim_us * others]
        return RequestTimes(times, outside)


@dataclass
class Allocating(Side):
    """Keep the memory of as many calls as the largest request since the last release had."""

    allocated: int = 0
    late: list[int] = field(default_factory=list)

    def release(self) -> int:
        self.allocated = 0
        return 1 << 30

    def run(self, messages: list[dict[str, Any]], timeout_s: float) -> RequestTimes:
        self.allocated = max(self.allocated, len(messages))
        return super().run(messages, timeout_s)

    def run_held(
        self, messages: list[dict[str, Any]], timeout_s: float, patience_s: float = HOLD_S
    ) -> RequestTimes:
        self.late.append(max(0, len(messages) - self.allocated))
        return super().run_held(messages, timeout_s, patience_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    simulated = Clock()
    monkeypatch.setattr(case_timer, "time", simulated)
    monkeypatch.setattr(case_timer, "make_first_calls", lambda problem, sides, *_, **__: None)
    return simulated


def timed(sides: list[Side], oracle: Oracle | None = None, seed: int = 3) -> Timings:
    """Time the case in all sessions of the full plan."""
    found, rng, simulated = Timings({CASE.name: []}), random.Random(seed), oracle or Oracle()
    problem: Any = None
    given: Any = sides
    for _ in range(FULL.sessions):
        earlier: Any = found.sessions[CASE.name]
        one: Any = simulated
        timer = CaseTimer(problem, one, given, CASE, FULL.on_gpu(), 30.0, rng, earlier)
        earlier.append(timer.measure())
    return found


def pair(clock: Clock, speedup: float, device_us: float, host_us: float, **how: Any) -> list[Side]:
    """Return a baseline, and a candidate that is faster by that factor on the device and the host."""
    baseline = Side(BASELINE, clock, device_us, host_us, **how)
    return [Side(CANDIDATE, clock, device_us / speedup, host_us / speedup, **how), baseline]


@pytest.mark.parametrize(("device_us", "host_us"), [(50.0, 10.0), (2_000.0, 40.0), (40.0, 160.0), (9_000.0, 90.0)])
@pytest.mark.parametrize("speedup", [1.0, 1.25])
def test_both_times_show_the_true_speedup(clock: Clock, device_us: float, host_us: float, speedup: float) -> None:
    oracle = Oracle()
    timings = timed(pair(clock, speedup, device_us, host_us), oracle)
    assert timings.basis(CASE.name) is Objective.DEVICE and not timings.waits(CASE.name)
    for basis in (Objective.DEVICE, Objective.CALL):
        found = timings.case_speedup(CASE.name, BASELINE, random.Random(1), basis)
        assert found.median == pytest.approx(speedup, rel=0.003)
        assert found.low <= found.median <= found.high and found.high / found.low < 1.02
    assert timings.time(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(device_us, rel=0.003)
    assert oracle.judged >= FULL.sessions


@pytest.mark.parametrize("device_us", [50.0, 2_000.0])
def test_no_timed_call_of_a_side_that_gave_its_memory_back_allocates_it_again(
    clock: Clock, device_us: float
) -> None:
    sides = [Allocating(name, clock, device_us, 10.0) for name in (CANDIDATE, BASELINE)]
    for side in sides:
        side.arena.frugal = True
    timings = timed(list[Side](sides))
    # The first held call of a session finds out whether the side can be held, and is not timed.
    assert all(sum(one > 0 for one in side.late) <= FULL.sessions for side in sides)
    assert all(len(side.late) > 4 * FULL.sessions for side in sides)
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(1.0, rel=0.003)


def test_calls_that_fill_the_queue_are_judged_by_call_time(clock: Clock) -> None:
    sides = pair(clock, 1.1, 700.0, 4_000.0, fills_queue=True)
    timings = timed(sides)
    assert timings.basis(CASE.name) is Objective.CALL and timings.waits(CASE.name) == [Flag.LAUNCH_BOUND]
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(1.1, rel=0.003)
    # Tried in the first session, with a second hold that tells why; not again.
    assert [side.held for side in sides] == [2, 2]


def test_a_kernel_beside_a_reference_that_cannot_be_held_shows_its_own_device_time(clock: Clock) -> None:
    reference = Side(BASELINE, clock, 700.0, 4_000.0, fills_queue=True)
    timings = timed([Side(CANDIDATE, clock, 350.0, 2_000.0), reference])
    assert timings.basis(CASE.name) is Objective.CALL and timings.waits(CASE.name) == [Flag.LAUNCH_BOUND]
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(2.0, rel=0.003)
    assert timings.time(CASE.name, CANDIDATE, random.Random(1)).median == pytest.approx(350.0, rel=0.003)
    assert timings.time(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(4_000.0, rel=0.003)


def test_a_large_call_beside_a_reference_that_cannot_be_held_shows_none_of_the_time_after_waking(
    clock: Clock,
) -> None:
    reference = Side(BASELINE, clock, 700.0, 8_000.0, fills_queue=True, wake_us=200.0)
    oracle = Oracle(output_bytes=270 << 20)
    timings = timed([Side(CANDIDATE, clock, 80.0, 20.0, wake_us=200.0), reference], oracle)
    assert timings.basis(CASE.name) is Objective.CALL and oracle.judged >= FULL.sessions
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(100.0, rel=0.003)


def test_the_second_of_two_calls_counts_as_no_faster_than_on_a_held_device(clock: Clock) -> None:
    reference = Side(BASELINE, clock, 700.0, 8_000.0, fills_queue=True)
    cheat = Side(CANDIDATE, clock, 400.0, 20.0, claim_us=20.0)
    timings = timed([cheat, reference], Oracle(output_bytes=270 << 20))
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(20.0, rel=0.01)


def test_a_call_that_is_too_large_for_a_pair_is_alone_and_not_warmed_up_in_an_arena_that_another_case_needs(
    clock: Clock,
) -> None:
    kernel, reference = Side(CANDIDATE, clock, 400.0, 20.0), Side(BASELINE, clock, 700.0, 8_000.0, fills_queue=True)
    timings = timed([kernel, reference], Oracle(output_bytes=500 << 20))
    assert (kernel.warmed_us, reference.warmed_us) == (0.0, 0.0)
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(20.0, rel=0.003)


@pytest.mark.parametrize("output_bytes", [BYTES, 60 << 20, 200 << 20])
def test_calls_of_a_loop_count_as_no_less_than_a_third_of_what_they_take_on_a_held_device(
    clock: Clock, output_bytes: int
) -> None:
    reference = Side(BASELINE, clock, 700.0, 8_000.0, fills_queue=True)
    cheat = Side(CANDIDATE, clock, 200.0, 20.0, claim_us=1.0)
    timings = timed([cheat, reference], Oracle(output_bytes))
    found = timings.case_speedup(CASE.name, BASELINE, random.Random(1))
    assert found.median == pytest.approx(3 * 40.0, rel=0.01), "the true speedup is 40"


@pytest.mark.parametrize("claim_us", [0.0, -1.0])
def test_the_second_of_two_calls_cannot_have_taken_no_time(clock: Clock, claim_us: float) -> None:
    reference = Side(BASELINE, clock, 700.0, 3_000.0, fills_queue=True)
    cheat = Side(CANDIDATE, clock, 80.0, 20.0, claim_us=claim_us)
    with pytest.raises(CandidateFailure, match="zero, negative or not finite") as caught:
        timed([cheat, reference], Oracle(output_bytes=270 << 20))
    assert (caught.value.status, caught.value.side) == (Status.SUSPECT, CANDIDATE)


def test_a_large_call_that_cannot_be_held_itself_is_timed_alone(clock: Clock) -> None:
    sides = pair(clock, 1.0, 700.0, 4_000.0, fills_queue=True, wake_us=200.0)
    timings = timed(sides, Oracle(output_bytes=270 << 20))
    (first, *_) = timings.sessions[CASE.name]
    assert first.sides[CANDIDATE].call.samples_us == pytest.approx([4_200.0] * 8, rel=0.01)
    assert timings.case_speedup(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(1.0, rel=0.01)


def test_a_short_call_beside_a_long_one_returns_to_the_device_before_it_is_timed(clock: Clock) -> None:
    kernel, parent = Side(CANDIDATE, clock, 80.0, 20.0), Side(PARENT, clock, 90.0, 20.0)
    reference = Side(BASELINE, clock, 700.0, 2 * LONG_US, fills_queue=True)
    problem: Any = None
    given: Any = [kernel, reference, parent]
    simulated: Any = Oracle(output_bytes=270 << 20)
    timer = CaseTimer(problem, simulated, given, CASE, FULL.on_gpu(), 30.0, random.Random(3))
    timer.measure()
    assert [timer._untimed_calls(side, Way.HELD, 1) for side in given] == [1, 0, 1]


def test_a_short_call_is_warmed_up_beside_a_reference_that_takes_the_host_long(clock: Clock) -> None:
    kernel = Side(CANDIDATE, clock, 80.0, 20.0)
    reference = Side(BASELINE, clock, 700.0, 2 * LONG_US, fills_queue=True)
    timed([kernel, reference])
    assert (kernel.warmed_us, reference.warmed_us) == (WARM_US, 0.0)


def test_a_parent_is_compared_by_device_time_beside_a_reference_that_cannot_be_held(clock: Clock) -> None:
    reference = Side(BASELINE, clock, 700.0, 4_000.0, fills_queue=True)
    # In a loop the host paces both kernels, so that their call times are equal.
    sides = [Side(CANDIDATE, clock, 40.0, 100.0), reference, Side(PARENT, clock, 50.0, 100.0)]
    timings = timed(sides)
    assert timings.basis(CASE.name) is Objective.CALL and timings.basis(CASE.name, PARENT) is Objective.DEVICE
    found = speedup_of(timings, PARENT, "parent", 1.01, random.Random(1))
    assert (found.basis, found.verdict) == (Objective.DEVICE, Verdict.FASTER)
    assert found.median == pytest.approx(1.25, rel=0.005) and found.high / found.low < 1.02
    against_reference = speedup_of(timings, BASELINE, "torch_eager", 1.01, random.Random(1))
    assert against_reference.basis is Objective.CALL
    assert against_reference.median == pytest.approx(40.0, rel=0.005)
    assert [session.holds(CANDIDATE, PARENT) for session in timings.sessions[CASE.name]] == [True] * FULL.sessions


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Interval(1.3, 1.1, 1.6), Verdict.FASTER),
        (Interval(1.3, 0.99, 1.6), Verdict.SAME),
        (Interval(1.02, 1.015, 1.03), Verdict.SAME),
    ],
    ids=["by the whole interval", "by a part of it", "for less than a third of what is claimed"],
)
def test_load_hides_no_win_that_the_referees_clock_shows(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, seen: Interval, expected: Verdict
) -> None:
    timings = timed([Side(CANDIDATE, clock, 10.0, 5.0), Side(BASELINE, clock, 32.0, 5.0)])
    assert speedup_of(timings, BASELINE, "torch_eager", 1.01, random.Random(1)).verdict is Verdict.FASTER
    monkeypatch.setattr(Timings, "clocks_agree", lambda *_, **__: False)
    monkeypatch.setattr(Timings, "referee_speedup", lambda *_: seen)
    assert speedup_of(timings, BASELINE, "torch_eager", 1.01, random.Random(1)).verdict is expected


def test_a_parent_that_cannot_be_held_is_compared_by_call_time(clock: Clock) -> None:
    parent = Side(PARENT, clock, 700.0, 4_000.0, fills_queue=True)
    timings = timed([Side(CANDIDATE, clock, 40.0, 100.0), Side(BASELINE, clock, 900.0, 200.0), parent])
    assert timings.basis(CASE.name, PARENT) is timings.basis(CASE.name) is Objective.CALL
    assert timings.case_speedup(CASE.name, PARENT, random.Random(1)).median == pytest.approx(40.0, rel=0.005)


def test_calls_that_take_the_host_long_are_made_less_often(clock: Clock) -> None:
    sides = pair(clock, 1.1, 60_000.0, 16 * LONG_US, fills_queue=True)
    timings = timed(sides)
    found = timings.case_speedup(CASE.name, BASELINE, random.Random(1))
    assert found.median == pytest.approx(1.1, rel=0.005)
    assert timings.time(CASE.name, BASELINE, random.Random(1)).median == pytest.approx(16 * LONG_US, rel=0.005)
    assert [len(session.unit_ratios(BASELINE, Objective.CALL)) for session in timings.sessions[CASE.name]] == [
        2,
        1,
        1,
    ]
    assert max(side.made for side in sides) <= 40


@pytest.mark.parametrize("seed", range(12))
def test_every_session_judges_a_timed_call_however_few_units_it_has(clock: Clock, seed: int) -> None:
    oracle = Oracle(output_bytes=200 << 20)  # so large that hardly any unit's outputs are kept by chance
    timings = timed(pair(clock, 1.0, 900_000.0, 100.0), oracle, seed)
    sessions = timings.sessions[CASE.name]
    assert all(len(session.unit_ratios(BASELINE, Objective.DEVICE)) <= 2 for session in sessions)
    assert all(session.judgements for session in sessions)
