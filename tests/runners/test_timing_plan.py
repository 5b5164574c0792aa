"""Test how many calls a request has, and whether they fit into the arena that was made for them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from runners.harness.memory.contents import Buffer, Content
from runners.harness.memory.shared_memory import place
from runners.harness.timing.noise import PLAN
from runners.harness.timing.sessions import Bench
from runners.harness.timing.timing import CONFIRM, FULL, MOST_LOOP_CALLS, QUICK, Plan
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
    requests.add(min(plan.most_in_a_request(content), MOST_LOOP_CALLS))
    for calls in requests:
        place(arena, [content.buffer_sizes] * calls, random.Random(2))


def test_a_problem_of_gigabytes_gets_an_arena_of_little_more_than_one_call() -> None:
    content = content_of(6 << 30, 6 << 30)
    assert bench_on_gpu()._case_bytes(content, FULL.on_gpu()) < 1.03 * sum(content.buffer_sizes)


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
