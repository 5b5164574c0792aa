"""Test how many calls a request has, and whether they fit into the arena that was made for them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from runners.harness.memory.contents import Buffer, Content
from runners.harness.memory.shared_memory import place
from runners.harness.timing.case_timer import WARM_US, CaseTimer, Way
from runners.harness.timing.measurements import CaseSession, SideTimes
from runners.harness.timing.noise import PLAN
from runners.harness.timing.plan import CONFIRM, FULL, MOST_LOOP_CALLS, QUICK, Plan
from runners.harness.timing.sessions import AT_ONCE_BYTES, SHARED_BYTES, Bench
from runners.problems.base import Case, Purpose

CASE = Case("case", {}, Purpose.BENCHMARK)


def content_of(input_bytes: int, output_bytes: int) -> Content:
    inputs: Any = {"x": Buffer({"name": "x"}, 0, input_bytes, 0)}
    return Content(1, CASE, "normal", inputs, [Buffer({}, -1, output_bytes, 0)])


def bench_on_gpu() -> Bench:
    unused: Any = None
    oracle: Any = SimpleNamespace(on_gpu=True)
    return Bench(unused, unused, oracle, [], unused, unused, random.Random(1), None)


@pytest.mark.parametrize("plan", [QUICK, FULL, CONFIRM, PLAN], ids=["quick", "full", "confirm", "noise floor"])
@pytest.mark.parametrize("input_bytes", [4, 4096, 3 << 20, 40 << 20, 200 << 20, 340 << 20, 600 << 20, 7 << 30])
def test_every_request_on_a_gpu_fits_into_its_arena(plan: Plan, input_bytes: int) -> None:
    plan, content = plan.on_gpu(), content_of(input_bytes, input_bytes // 2 + 4)
    arena = bench_on_gpu()._case_bytes(content, plan)
    most = plan.calls(content)
    requests = {most, plan.doubled(most, content), min(2, plan.doubled(most, content))}
    requests.add(min(plan.most_in_a_loop(content), MOST_LOOP_CALLS))
    for calls in requests:
        place(arena, [content.buffer_sizes] * calls, random.Random(2))


def test_a_problem_of_gigabytes_gets_an_arena_of_little_more_than_one_call() -> None:
    content = content_of(6 << 30, 6 << 30)
    assert bench_on_gpu()._case_bytes(content, FULL.on_gpu()) < 1.03 * sum(content.buffer_sizes)


@pytest.mark.parametrize(("mib", "calls"), [(250, 2), (300, 2), (384, 2), (385, 1)])
def test_a_loop_of_large_calls_has_two_as_long_as_processes_may_stand_side_by_side(mib: int, calls: int) -> None:
    plan, content = FULL.on_gpu(), content_of((mib << 20) - 4096, 4096)
    assert plan.most_in_a_loop(content) == calls
    assert plan.doubled(1, content) == (2 if mib <= 256 else 1), (
        "device time is still measured by calls of one size"
    )
    assert bench_on_gpu()._case_bytes(content, plan) < AT_ONCE_BYTES


def test_room_for_a_second_call_is_not_worth_starting_processes_one_by_one() -> None:
    bench, content = bench_on_gpu(), content_of(300 << 20, 4096)
    roomy = bench._case_bytes(content, FULL.on_gpu())
    bench.device_bytes = 16 << 30
    assert bench._takes_much(roomy) and not bench._takes_much(bench._case_bytes(content, FULL.on_gpu()))


def test_blocks_of_calls_that_fill_the_arena_are_not_doubled() -> None:
    content = content_of(700 << 20, 100 << 20)
    plan = FULL.on_gpu()
    assert plan.calls(content) == plan.doubled(1, content) == 1


class Side(SimpleNamespace):
    """Stand in for a process of a candidate whose calls take so many bytes beyond an arena."""

    def release(self) -> int:
        return int(self.call_bytes)


@pytest.mark.parametrize(("call_bytes", "stays"), [(1 << 20, True), (18 << 30, False)])
def test_a_candidate_whose_calls_take_gigabytes_does_not_wait_beside_others(call_bytes: int, stays: bool) -> None:
    bench, closed = bench_on_gpu(), list[Any]()
    side: Any = Side(
        call_bytes=call_bytes, arena=SimpleNamespace(size_bytes=1 << 20), close=lambda: closed.append(1)
    )
    bench.keep(side)
    assert (bench._checked is side) is stays and bool(closed) is not stays
    oracle: Any = bench.oracle
    oracle.arena = lambda name, size: SimpleNamespace(name=name, users=1, shared=False, frugal=False)
    arenas = {name: arena() for name, arena in bench._arenas(["candidate", "baseline"], 1 << 20).items()}
    assert all(arena.frugal is not stays for arena in arenas.values())
    assert (arenas["candidate"] is arenas["baseline"]) is not stays


@pytest.mark.parametrize(
    ("share", "call_bytes", "frugal"), [("", 1 << 30, False), ("0", 1 << 30, True), ("0", 1 << 20, False)]
)
def test_where_nothing_stands_ready_sides_of_smaller_calls_give_their_memory_back_too(
    share: str, call_bytes: int, frugal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_STANDING_SHARE", share)
    bench = bench_on_gpu()
    bench.device_bytes = 80 << 30
    oracle: Any = bench.oracle
    oracle.arena = lambda name, size: SimpleNamespace(name=name, users=1, shared=False, frugal=False)
    side: Any = Side(call_bytes=call_bytes, arena=SimpleNamespace(size_bytes=1 << 20), close=lambda: None)
    bench.keep(side)
    arenas = [arena() for arena in bench._arenas(["candidate", "baseline"], 1 << 20).values()]
    assert [arena.frugal for arena in arenas] == [frugal, frugal]
    # A process that was checked has an arena of its own, in which it would be timed in another way than the baseline.
    assert (bench._checked is side) is not frugal


def test_a_process_that_was_checked_does_not_count_as_a_user_of_an_arena_that_the_others_share() -> None:
    bench, made = bench_on_gpu(), list[Any]()
    bench.device_bytes = 80 << 30

    def arena(name: str, size_bytes: int) -> Any:
        made.append(SimpleNamespace(name=name, users=1, shared=False, frugal=False))
        return made[-1]

    oracle: Any = bench.oracle
    oracle.arena = arena
    checked: Any = ("candidate", "its own arena")
    any_bench: Any = bench
    any_bench._start = lambda name, artefact, given, **_: lambda: (name, given)
    any_bench._checked = checked
    first, second = any_bench._started(2, {"candidate": None, "baseline": None}, SHARED_BYTES)
    assert first == [checked, ("baseline", made[0])] and (made[0].users, made[0].shared) == (1, False)
    assert second == [("candidate", made[1]), ("baseline", made[1])] and (made[1].users, made[1].shared) == (
        2,
        True,
    )


def timer_on_gpu(call_us: float, waits: str, earlier: list[CaseSession]) -> CaseTimer:
    """Return a timer that has seen in its rehearsal that the host paces calls of that time."""
    unused: Any = None
    oracle: Any = SimpleNamespace(on_gpu=True)
    case = Case("case", {}, Purpose.BENCHMARK, distributions=("normal",))
    side: Any = SimpleNamespace(name="candidate", arena=SimpleNamespace(frugal=False))
    timer = CaseTimer(unused, oracle, [side], case, FULL.on_gpu(), 1.0, random.Random(1), earlier)
    timer._result.sides["candidate"].waits = waits
    timer._call_us["candidate"] = call_us
    timer._choose_loop(content_of(4096, 4096), 4, host_bound=True)
    return timer


def test_a_call_that_takes_the_host_long_is_not_warmed_up_and_needs_one_unit_in_later_sessions() -> None:
    earlier = CaseSession(CASE, {"candidate": SideTimes(waits="launch_bound")})
    first, later = (timer_on_gpu(160_000.0, "launch_bound", known) for known in ([], [earlier]))
    assert [timer._warming_us(timer._sides[0]) for timer in (first, later)] == [0.0, 0.0]
    assert first._loop_calls == 2
    assert not any(
        timer._untimed_calls(timer._sides[0], way, n)
        for timer in (first, later)
        for way, n in ((Way.SINGLE, 1), (Way.STEADY, 2))
    )
    assert first._least_units == FULL.least_units and later._least_units == 1
    # Only the first session makes single calls, which are shown and decide nothing.
    assert [first._ways(unit) for unit in (0, 1)] == [[Way.SINGLE, Way.STEADY], [Way.STEADY]]
    assert later._ways(0) == [Way.STEADY]


@pytest.mark.parametrize(("call_us", "waits"), [(800.0, "launch_bound"), (160_000.0, "")])
def test_a_short_call_and_one_that_can_be_held_are_warmed_up(call_us: float, waits: str) -> None:
    earlier = CaseSession(CASE, {"candidate": SideTimes()})
    timer = timer_on_gpu(call_us, waits, [earlier])
    assert (
        timer._warming_us(timer._sides[0]) == WARM_US
        and timer._untimed_calls(timer._sides[0], Way.SINGLE, 1)
        and timer._least_units == 2
    )


def test_a_side_that_could_not_be_held_is_not_tried_again() -> None:
    earlier = CaseSession(CASE, {"candidate": SideTimes(waits="synchronises")})
    timer = timer_on_gpu(800.0, "", [earlier])
    side: Any = SimpleNamespace(name="candidate")  # has no way to be asked for a held call
    assert timer._is_host_bound(side, [], 700.0) and not timer._result.held
