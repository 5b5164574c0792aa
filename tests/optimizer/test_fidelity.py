"""Test that the papers' strategies and the other baselines do what they are named for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.prompts import Played
from optimizer.agents.delimiters import Delimiters
from optimizer.agents.prompting import build_prompt
from optimizer.calls.record import SHIPPED, shipped
from optimizer.llm.recording import from_bytes
from optimizer.search.base import Ask, KernelView
from optimizer.search.baselines import Reflexion, ReflexionSettings
from optimizer.search.machinery.descriptor import descriptor
from optimizer.search.scientist import Scientist, ScientistSettings
from runners.job import Language, Source
from runners.problems import load, open_bundle
from tests.optimizer.simulated_run import Answer, SimulatedRun, numbered_answers, seed

# reflexion


def reflecting() -> Answer:
    plain = numbered_answers(random.Random(3))

    def answer(ask: Ask) -> Mapping[str, Any] | None:
        return {"text": f"learnt from {ask.key}"} if ask.role == "reflect" else plain(ask)

    return answer


def reflexion(budget: int = 6, **settings: Any) -> SimulatedRun:
    outcomes = random.Random(5)
    return SimulatedRun(
        Reflexion(), ReflexionSettings(**settings), reflecting(),
        lambda draft: None if outcomes.random() < 0.4 else outcomes.uniform(10, 90), budget,
    ).play()  # fmt: skip


def test_reflexion_reflects_on_every_attempt_but_the_last_before_it_revises_it() -> None:
    run = reflexion()
    keys = [ask.key for ask in run.asked]
    assert keys == [f"a{n}.{role}" for n in range(1, 7) for role in ("solo", "reflect")][:-1]
    assert run.calls["a3.reflect"].context["node"] == "a3"


@pytest.mark.parametrize(("budget", "reflects"), [(2, False), (3, True)])
def test_reflexion_reflects_on_nothing_when_an_attempt_under_way_is_the_last(budget: int, reflects: bool) -> None:
    run = reflexion(budget=1, concurrency=2)
    assert "a1" in {kernel.key for kernel in run.kernels}
    opened = run.calls["a1.solo"]
    run.calls["a2.solo"] = replace(opened, key="a2.solo", finished=False, answer=None)
    run.budget = budget
    asked = [step.key for step in run.strategy.decide(run.history()) if isinstance(step, Ask)]
    assert ("a1.reflect" in asked) == reflects


def test_the_newest_reflections_are_in_the_next_attempts_prompt() -> None:
    run = reflexion(memory=2)
    ask = next(ask for ask in run.asked if ask.key == "a5.solo")
    assert ask.context["reflections"] == ["a3.reflect", "a4.reflect"]
    told = replace(run.history(), problem=open_bundle(load("softmax_rows")))
    said = build_prompt(ask, told, delimiters=Delimiters("m" * 16)).messages[-1]["content"]
    assert "learnt from a4.reflect" in said and "learnt from a2.reflect" not in said
    assert said.index("learnt from a3.reflect") < said.index("learnt from a4.reflect")


def test_an_agent_that_does_not_reflect_still_revises() -> None:
    plain = numbered_answers(random.Random(3))
    run = SimulatedRun(
        Reflexion(), ReflexionSettings(), lambda ask: None if ask.role == "reflect" else plain(ask),
        lambda draft: 10.0, 3,
    ).play()  # fmt: skip
    assert [ask.context["reflections"] for ask in run.asked if ask.role == "solo"] == [[], [], []]
    assert len(run.kernels) == 5


# islands


def test_kernels_of_the_recorded_runs_fall_into_several_cells() -> None:
    for name in shipped():
        run = Played(from_bytes((SHIPPED / f"{name}.json.gz").read_bytes()).model_dump(mode="json"))
        run.play()
        cells = Counter(descriptor(kernel) for kernel in run.kernels if kernel.author_kind == "agent")
        assert len(cells) >= 4, name
        assert max(cells.values()) <= 5, name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("// @tune TILE 16 64 default=16", "// @tune TILE 16 64 default=64"),
        ("__m256 v;", "__m512 v;"),
        ("float s;", "_mm256_stream_ps(p, v);"),
        ("__m256 v;", "__m256 v; _mm_prefetch(p, 0);"),
    ],
)
def test_kernels_that_work_differently_are_in_different_cells(one: str, other: str) -> None:
    left, right = (
        replace(seed("k", 1.0, 0), source=Source(Language.CPP, f"{text}\nint x;")) for text in (one, other)
    )
    assert descriptor(left) != descriptor(right)
    commented = replace(
        left, source=Source(Language.CPP, f"// {right.source.text.splitlines()[0]} mfma\n{one}\nint x;")
    )
    assert descriptor(commented)[4:] == descriptor(left)[4:], "comments say nothing of how a kernel works"


# the scientist asks for no more than it can try


def scientist(budget: int, *, kernels: list[KernelView] | None = None) -> SimulatedRun:
    return SimulatedRun(
        Scientist(), ScientistSettings(), numbered_answers(random.Random(3)), lambda draft: 50.0, budget,
        kernels=kernels or [],
    ).play()  # fmt: skip


@pytest.mark.parametrize(("budget", "writers", "wanted"), [(1, 1, (6, 3)), (2, 2, (8, 4)), (3, 3, (10, 5))])
def test_no_more_writers_are_asked_than_evaluations_are_left(
    budget: int, writers: int, wanted: tuple[int, int]
) -> None:
    run = scientist(budget)
    assert sum(ask.role == "writer" for ask in run.asked) == writers
    design = next(ask for ask in run.asked if ask.role == "designer")
    assert (design.context["avenues"], design.context["experiments"]) == wanted


def test_a_single_kernel_is_not_selected_from() -> None:
    run = scientist(4, kernels=[seed("reference", 100.0, 0, Language.PYTHON)])
    roles = [ask.key for ask in run.asked if ask.role in {"selector", "designer"}]
    assert roles == ["r1.design", "r2.select", "r2.design"]
    assert run.calls["r1.design"].context["base"] == "seed.reference"
