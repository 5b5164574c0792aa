"""Test that what tuning has found stays: in the kernel's text, and in the tree on which the agents build."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.search.attempts import SoloSettings, given_kernels
from optimizer.search.base import (
    AS_PUBLISHED,
    Ask,
    Draft,
    History,
    KernelView,
    RecordedAsk,
    Strategy,
    StrategySettings,
)
from optimizer.search.baselines import Sampling
from optimizer.search.flow import Flow
from optimizer.search.islands import Islands, IslandsSettings, replay_archive
from optimizer.search.machinery.handoff import TuneSettings, shape_dispatch
from optimizer.search.machinery.tuned_source import Choice, dispatched, shapes_of, with_values
from optimizer.search.machinery.winners import tuned_winners
from optimizer.search.scientist import Scientist, ScientistSettings
from optimizer.search.stark import Stark, StarkSettings
from runners.backends.base import chosen_tunables
from runners.job import Language, Source, Status
from runners.problems import load, open_bundle
from runners.tunables import parse
from tests.optimizer.simulated_run import Answer, SimulatedRun, numbered_answers, seed

TUNABLE = (
    "// @tune TILE 16 32 64 default=32\n// @flags -O2 | -O3\n#ifndef TILE\n#define TILE 32\n#endif\nint x = TILE;"
)
ENTRY = 'extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols) {}'
SOFTMAX = open_bundle(load("softmax_rows"))


def tunable_answers() -> Answer:
    """Return valid answers whose kernels declare a tunable."""
    plain = numbered_answers(random.Random(3))

    def answer(ask: Ask) -> Mapping[str, Any]:
        said = dict(plain(ask) or {})
        return said | {"source": f"{TUNABLE}\n// {said['source']}\n{said['source']}"} if "source" in said else said

    return answer


def time_by_tile(draft: Draft) -> float:
    """Return a time by which 64 is the fastest tile; without a tile, later kernels are faster."""
    tile = {**parse(draft.source.text).defaults(), **draft.source.tunables}.get("TILE", 32)
    return 50.0 - float(tile) / 2 + 0.01 * sum(map(ord, draft.key)) % 1


def played(strategy: Strategy, settings: StrategySettings, budget: int = 12) -> SimulatedRun:
    return SimulatedRun(strategy, settings, tunable_answers(), time_by_tile, budget).play()


def test_chosen_values_are_written_into_declaration_macro_and_flags() -> None:
    text = with_values(Source(Language.CPP, TUNABLE, {"TILE": 64}, ("-O3",))).text
    assert "@tune TILE 16 32 64 default=64" in text
    assert "#define TILE 64" in text and "#define TILE 32" not in text
    assert "@flags -O3 | -O2" in text


def test_chosen_values_are_written_into_a_python_module() -> None:
    source = next(seed.source for seed in SOFTMAX.seeds if seed.name == "triton_rows")
    text = with_values(replace(source, tunables={"BLOCK": 1024, "WARPS": 16})).text
    assert "\nBLOCK = 1024\n" in text and "\nWARPS = 16\n" in text
    assert parse(text).defaults() == {"BLOCK": 1024, "WARPS": 16}


SEEDS = [
    seed.source
    for name in ("softmax_rows", "layernorm_residual", "matmul_bias_gelu", "fp8_block_gemm")
    for seed in open_bundle(load(name)).seeds
    if parse(seed.source.text).parameters
]


@given(st.sampled_from(SEEDS), st.data())
def test_a_text_with_its_values_written_in_builds_the_same_without_them(
    source: Source, data: st.DataObject
) -> None:
    space = parse(source.text)
    chosen = {p.name: data.draw(st.sampled_from(p.values)) for p in space.parameters}
    written = with_values(replace(source, tunables=chosen))
    if space.violated(chosen):
        return
    assert chosen_tunables(replace(written, tunables={})) == chosen


def test_the_winner_of_a_tuning_is_a_node_that_stark_builds_on() -> None:
    run = played(Stark(), StarkSettings(epsilon=0.0))
    tuned = [kernel for kernel in run.kernels if kernel.author_kind == "tuner"]
    assert tuned, "a good kernel is tuned without being asked"
    built_on = {
        kernel.parent_keys[0] for kernel in run.kernels if kernel.key.startswith("a") and "." not in kernel.key
    }
    winners = {kernel.key for kernel in tuned_winners(run.history()).values()}
    assert winners & built_on
    assert all("default=64" in run.history().kernels_by_key[key].source.text for key in winners)


def test_losing_configurations_are_no_nodes() -> None:
    run = played(Stark(), StarkSettings(epsilon=0.0))
    history = run.history()
    given_ = {kernel.key for kernel in given_kernels(history)}
    losers = {
        kernel.key
        for kernel in run.kernels
        if kernel.author_kind == "tuner" and kernel.time_us is not None and kernel.time_us > 30
    }
    assert losers and not losers & given_


def test_the_scientists_next_base_carries_the_tuned_values_in_its_text() -> None:
    run = SimulatedRun(
        Scientist(),
        ScientistSettings(),
        lambda ask: (
            {"basis_code": 99, "basis_reference": 99, "rationale": "no such kernel"}
            if ask.role == "selector"
            else tunable_answers()(ask)
        ),
        time_by_tile,
        12,
    ).play()
    base = run.calls["r2.design"].context["base"]
    assert "default=64" in run.history().kernels_by_key[base].source.text
    population = run.calls["r2.select"].context["population"]
    assert sum(".t" in key for key in population) == 1, "configurations that lost are not in the table"


def test_tuning_leaves_the_agents_most_of_the_budget() -> None:
    run = played(Stark(), StarkSettings(tune=TuneSettings(share=0.25)), budget=20)
    assert 0 < sum(kernel.author_kind == "tuner" for kernel in run.kernels) <= 5


@pytest.mark.parametrize(("width", "most_open"), [(8, 3), (2, 2), (1, 1)])
def test_configurations_are_queued_side_by_side_though_agents_work_one_after_the_other(
    width: int, most_open: int
) -> None:
    run = played(Stark(), StarkSettings(tune=TuneSettings(width=width)), budget=12)
    assert sum(kernel.author_kind == "tuner" for kernel in run.kernels) == 3
    assert run.most_open == most_open


@pytest.mark.parametrize("budget", range(8, 15))
def test_a_tuning_leaves_evaluations_to_the_kernels_that_are_being_written(budget: int) -> None:
    settings = SoloSettings(concurrency=2, tune=TuneSettings(share=1))
    times = count(100, -1)
    run = SimulatedRun(Sampling(), settings, tunable_answers(), lambda _: float(next(times)), budget).play()
    written = [kernel for kernel in run.kernels if kernel.author_kind == "agent"]
    assert len(written) == len(run.asked) and len(run.kernels) == 2 + budget


def test_a_tuning_takes_no_slot_from_the_agents() -> None:
    tuned = Draft("a1.t0", Source(Language.CPP, "int tuned;"), author_kind="tuner")
    written = Draft("a2", Source(Language.CPP, "int written;"))
    history = SimulatedRun(Stark(), StarkSettings(), tunable_answers(), time_by_tile).history()
    flow = Flow(history)
    assert all(flow.waits(partial(flow.evaluate, draft)) for draft in (tuned, written, replace(written, key="a3")))
    assert flow.steps == [tuned, written]
    running = KernelView(tuned.key, 2, (), "tuner", tuned.source, finished=False)
    later = Flow(replace(history, kernels=(*history.kernels, running)))
    assert later.waits(partial(later.evaluate, written)) and later.steps == [written]


def test_the_islands_keep_what_tuning_has_found() -> None:
    settings = IslandsSettings(islands=2)
    run = played(Islands(), settings)
    elites = {k.key for cells in replay_archive(run.history(), settings).islands for k in cells.values()}
    assert elites & {kernel.key for kernel in tuned_winners(run.history()).values()}


def test_as_published_switches_off_what_the_papers_do_not_have() -> None:
    for cls in (StarkSettings, ScientistSettings, IslandsSettings):
        settings = cls.model_validate({"preset": "as_published", "tune": {"evaluations": 9}, "warm_start": True})
        assert settings.tune.evaluations == 0
        assert not settings.warm_start and settings.profile == "never" and settings.stop_at_roofline == 0
    assert AS_PUBLISHED["tools"] == "none"
    assert not any(k.author_kind == "tuner" for k in played(Stark(), StarkSettings(preset="as_published")).kernels)


class Replay(SimulatedRun):
    """Replay a run on a machine where other kernels are fast."""

    def of(self, run: SimulatedRun) -> SimulatedRun:
        self.asks = {key: RecordedAsk(c.role, c.context, SCHEMAS[c.role]) for key, c in run.calls.items()}
        self.tuning = defaultdict(list)
        for kernel in run.kernels:
            if kernel.author_kind == "tuner":
                self.tuning[kernel.parent_keys[0]].append(run.drafts[kernel.key])
        return self.play()

    def history(self) -> History:
        return replace(super().history(), recorded=self.asks, recorded_tuning=self.tuning)


SCHEMAS = {
    "selector": "SelectorAnswer", "designer": "DesignerAnswer", "writer": "KernelAnswer", "plan": "PlanAnswer",
    "code": "BlockAnswer", "debug": "KernelAnswer", "findings": "FindingsAnswer", "digest": "DigestAnswer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "settings"), [(Stark(), StarkSettings(epsilon=0.0)), (Scientist(), ScientistSettings())]
)
def test_a_replay_has_the_recorded_configurations_and_builds_on_them(
    strategy: Strategy, settings: StrategySettings
) -> None:
    run = played(strategy, settings)
    assert any(kernel.author_kind == "tuner" for kernel in run.kernels)
    rng = random.Random(11)
    answers = {key: call.answer for key, call in run.calls.items()}
    again = Replay(strategy, settings, lambda ask: answers.get(ask.key), lambda draft: rng.uniform(1, 99), 12).of(
        run
    )
    assert lineage(again) == lineage(run)


def lineage(run: SimulatedRun) -> dict[str, tuple[tuple[str, ...], Source]]:
    return {kernel.key: (kernel.parent_keys, kernel.source) for kernel in run.kernels}


# a configuration for every shape


def trial(key: str, number: int, tile: int, **times: float) -> KernelView:
    source = Source(Language.CPP, TUNABLE, {"TILE": tile}, ())
    mean = (times["256x8192"] * times["1024x256"] * times["512x1024"]) ** (1 / 3)
    parents = () if key == "a1" else ("a1",)
    return KernelView(
        key, number, parents, "agent" if key == "a1" else "tuner", source, True, Status.CORRECT,
        time_us=mean, times_us=times,
    )  # fmt: skip


def times(a: float, b: float, c: float) -> dict[str, float]:
    return {"256x8192": a, "1024x256": b, "512x1024": c}


def test_shapes_that_want_different_configurations_get_one_kernel_that_chooses() -> None:
    text = TUNABLE.replace(
        "int x = TILE;", 'extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols) {}'
    )
    kernels = [
        replace(one, source=replace(one.source, text=text))
        for one in (
            trial("a1", 1, 32, **times(10, 10, 10)),
            trial("a1.t0", 2, 64, **times(5, 20, 10)),
            trial("a1.t1", 3, 16, **times(20, 5, 10)),
        )
    ]
    history = History(SOFTMAX, "cpu", StrategySettings(), 1, kernels)
    draft = shape_dispatch(history, kernels[0])
    assert draft is not None and draft.key == "a1.shapes" and draft.author_kind == "tuner"
    assert "rows == 256 && cols == 8192" in draft.source.text
    assert "#define TILE 64" in draft.source.text and "#define TILE 16" in draft.source.text
    same = [replace(one, times_us=times(10, 10, 10)) for one in kernels]
    assert shape_dispatch(History(SOFTMAX, "cpu", StrategySettings(), 1, same), same[0]) is None


@pytest.mark.processes
def test_a_dispatch_over_shapes_builds_and_computes_what_its_configurations_compute(tmp_path: Path) -> None:
    source = next(one.source for one in SOFTMAX.seeds if one.name == "vectorised")
    default = parse(source.text).defaults()
    choice = Choice(default, {(256, 8192): {**default, "LANES": 16}, (3, 5): {**default, "UNROLL": 2}})
    kernel = dispatched(source, SOFTMAX, choice)
    assert kernel is not None
    (tmp_path / "k.cpp").write_text(kernel.text)
    command = ["g++", "-std=c++20", "-O1", "-fopenmp", "-march=native", "-fPIC", "-shared", "k.cpp", "-o", "k.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for rows, cols in ((3, 5), (4, 7)):
        given_, out = (ctypes.c_float * (rows * cols))(*[0.0] * (rows * cols)), (ctypes.c_float * (rows * cols))()
        library.softmax_rows(given_, out, ctypes.c_int64(rows), ctypes.c_int64(cols))
        assert list(out) == pytest.approx([1 / cols] * (rows * cols))


def test_a_dispatch_in_python_sets_the_tunables_by_the_shapes_of_the_inputs() -> None:
    source = Source(Language.PYTHON, "# @tune T 1 2 default=1\nT = 1\n\ndef custom_kernel(x):\n    return T\n")
    kernel = dispatched(source, SOFTMAX, Choice({"T": 1}, {(4, 8): {"T": 2}}))
    assert kernel is not None
    module: dict[str, Any] = {}
    exec(kernel.text, module)  # noqa: S102

    class Shaped:
        def __init__(self, *shape: int) -> None:
            self.shape = shape

    assert [module["custom_kernel"](Shaped(*shape)) for shape in ((4, 8), (5, 5), (4, 8))] == [2, 1, 2]


def test_the_timed_shapes_are_those_that_the_problem_declares() -> None:
    assert shapes_of(SOFTMAX, "cpu") == {"1024x256": (1024, 256), "512x1024": (512, 1024), "256x8192": (256, 8192)}


def test_a_text_with_conditional_includes_is_not_taken_apart() -> None:
    text = f"#if 1\n#include <cmath>\n#endif\n{ENTRY}"
    assert dispatched(Source(Language.CPP, text), SOFTMAX, Choice({}, {(1, 1): {"A": 1}})) is None


# what people and seeds bring


def test_stark_starts_from_all_seeds_and_builds_on_a_persons_kernel() -> None:
    edit = replace(
        seed("edit", 1.0, 2),
        key="person.1",
        author_kind="person",
        parent_keys=("seed.naive",),
        times_us={"case": 1.0},
    )
    kernels = [seed("reference", 100.0, 0, Language.PYTHON), seed("naive", 50.0, 1), edit]
    run = SimulatedRun(
        Stark(), StarkSettings(epsilon=0.0, plan_temperature=0.8), numbered_answers(random.Random(3)),
        lambda draft: 60.0, 3, kernels=kernels,
    ).play()  # fmt: skip
    assert run.kernels[3].parent_keys == ("person.1",)
    planned = run.calls["a1.plan"].context["window"]
    assert planned[0] == "person.1" and "seed.reference" in planned
    cold = SimulatedRun(
        Stark(), StarkSettings(preset="as_published"), numbered_answers(random.Random(3)), lambda draft: 60.0, 1,
        kernels=kernels[:2],
    ).play()  # fmt: skip
    assert cold.calls["a1.plan"].context["window"] == ["seed.reference"]


def test_seeds_do_not_use_up_the_root() -> None:
    kernels = [seed("reference", 1.0, 0, Language.PYTHON), *(seed(f"s{n}", 90.0, n) for n in range(1, 7))]
    run = SimulatedRun(
        Stark(),
        StarkSettings(epsilon=0.0),
        numbered_answers(random.Random(3)),
        lambda draft: 80.0,
        2,
        kernels=kernels,
    ).play()
    assert [k.parent_keys for k in run.kernels[7:]] == [("seed.reference",)] * 2
