"""Test predictions from machine code: the model's mathematics, its intervals, what a page says, what tuning gains."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.test import Client

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.calls.tool_calls import do_finish_tool_call
from optimizer.models import CallTurn, Evaluation, EvaluationStatus, Kernel, Run, ToolCall
from optimizer.queries.kernel_resources import changed_features, feature_rows
from optimizer.queries.prediction import prediction_of
from optimizer.runs.history import told_history_of
from optimizer.search.machinery.time_model import FEWEST, TimeModel
from optimizer.search.samplers import SAMPLERS, Trial
from optimizer.search.samplers.guesses import with_guesses
from optimizer.search.samplers.static import StaticTable
from optimizer.search.space import Key, Space
from runners.job import BuildReport, JobResult, KernelResources, Status
from runners.static_features.cost import descriptors
from runners.wire import to_plain
from tests.factories import make_kernel, make_question, make_run, make_team, make_user

BLOCKS = [16, 32, 48, 64, 80, 96, 112, 128]
TILES = [1, 2, 3, 4, 5, 6]


def figures(scratch: float, loads: float = 8.0) -> dict[str, float]:
    """Return the figures of a kernel that computes 100 FLOPs with so many accesses."""
    return {"flops": 100.0, "vector": 60.0, "load": loads, "scratch": scratch, "instructions": 100 + scratch,
            "loop_instructions": 0.0, "occupancy": 4.0}  # fmt: skip


def drawn(count: int, seed: int, noise: float = 0.1) -> tuple[list[dict[str, float]], list[float]]:
    rng = np.random.default_rng(seed)
    found = [figures(float(rng.integers(0, 60)), float(rng.integers(4, 30))) for _ in range(count)]
    times = [(5 + one["scratch"] / 3 + one["load"]) * math.exp(rng.normal(0, noise)) for one in found]
    return found, times


def test_more_spills_cost_more_by_the_rules_alone() -> None:
    costs = [descriptors(figures(spills))["cost"] for spills in (0, 10, 50)]
    assert costs == sorted(costs) and len(set(costs)) == 3


def test_a_kernel_whose_tiles_need_more_programs_costs_more() -> None:
    few, many = ({**figures(0), "programs": count} for count in (1024.0, 16384.0))
    assert descriptors(few)["cost"] < descriptors(many)["cost"]


def test_kernels_with_and_without_a_known_launch_are_compared_as_if_both_launched_as_much() -> None:
    known, times = drawn(20, 3)
    told = [{**one, "programs": 4096.0} for one in known]
    mixed = TimeModel.fit([*told[:10], *known[10:]], times)
    whole = TimeModel.fit(told, times)
    assert mixed is not None and whole is not None
    assert mixed.predict(known[0]) == whole.predict(known[0]) == whole.predict(told[0])


def test_too_few_measured_kernels_give_no_model_and_a_kernel_without_figures_no_prediction() -> None:
    known, times = drawn(FEWEST, 1)
    assert TimeModel.fit(known[:-1], times[:-1]) is None
    assert TimeModel.fit([*known[:-1], {}], times) is None
    model = TimeModel.fit(known, times)
    assert model is not None and model.predict({}) is None


def test_a_model_ranks_kernels_that_it_has_not_seen_and_its_intervals_hold() -> None:
    held, near = [], []
    for seed in range(10):
        known, times = drawn(60, seed)
        model = TimeModel.fit(known[:30], times[:30])
        assert model is not None
        for one, time in zip(known[30:], times[30:], strict=True):
            found = model.predict(one)
            assert found is not None and found.low_us < found.time_us < found.high_us
            held.append(found.low_us <= time <= found.high_us)
            near.append(abs(math.log(found.time_us / time)))
    assert 0.72 <= np.mean(held) <= 0.88
    assert np.median(near) < 0.2


@pytest.mark.parametrize("times", [[1.0] * 8, [1e-6, 1e9, 1.0, 2.0, 3.0, 1e-6, 1e9, 5.0]])
def test_a_model_of_equal_or_extreme_times_stays_finite(times: list[float]) -> None:
    model = TimeModel.fit([figures(3.0)] * 8, times)
    assert model is not None
    found = model.predict(figures(1e6))
    assert found is not None and all(map(math.isfinite, (found.low_us, found.time_us, found.high_us)))


def space() -> Space:
    return Space.of({"block": BLOCKS, "tile": TILES})


def built(compiled: Space) -> dict[Key, dict[str, float]]:
    """Return features by which only two configurations in a hundred are free of spills."""
    keys = [compiled.key(config) for config in compiled.enumerate_valid()]
    return {key: figures(0.0 if key == (80, 5) else 10.0 + hash(key) % 40) for key in keys}


def test_rows_that_were_not_compiled_have_a_column_of_their_own_and_cost_more_than_any_other() -> None:
    known = built(space())
    del known[(16, 1)]
    table = StaticTable.of(space(), known)
    assert table is not None
    rows = np.array([[0, 0], [4, 4]], dtype=np.int32)
    assert table.of_rows(rows)[:, -1].tolist() == [1.0, 0.0]
    assert table.cost(rows)[0] > table.cost(space().rows).max() - 1e-9 > 1 and table.cost(rows)[1] == 0.0


def test_descriptors_are_guessed_from_compiled_configurations_that_are_alike() -> None:
    known = {key: figures(10.0 * float(key[1])) for key in map(space().key, space().enumerate_valid())}
    left_out = [key for number, key in enumerate(known) if number % 3 == 0]
    compiled = {key: found for key, found in known.items() if key not in left_out}
    whole, part = StaticTable.of(space(), known), StaticTable.of(space(), compiled)
    assert whole is not None and part is not None
    guessed = with_guesses(part, space())
    rows = np.array([space().row(dict(zip(space().names, key, strict=True))) for key in left_out])
    found, true = guessed.of_rows(rows)[:, :-1], whole.of_rows(rows)[:, :-1]
    assert np.abs(found - true).mean() < 0.6 * np.abs(part.of_rows(rows)[:, :-1] - true).mean()
    assert (guessed.of_rows(rows)[:, -1] > 0).all()
    assert guessed.of_rows(space().rows)[:, -1].min() == 0, "what was compiled is certain"


def test_guesses_are_made_once_for_all_questions_about_the_same_rows() -> None:
    known = {key: figures(10.0 * float(key[1])) for key in map(space().key, space().enumerate_valid())}
    part = StaticTable.of(space(), dict(list(known.items())[::3]))
    assert part is not None
    guessing = with_guesses(part, space())
    rows = space().rows[:9]
    covering = guessing.covering(rows)
    assert np.allclose(covering.of_rows(space().rows), guessing.of_rows(space().rows))
    assert np.allclose(covering.cost(space().rows), guessing.cost(space().rows))
    silent = replace(covering, guess=None)
    assert np.array_equal(silent.of_rows(rows), covering.of_rows(rows)), "no row needs a guess any more"
    assert not np.allclose(silent.of_rows(space().rows), guessing.of_rows(space().rows)), "others still do"
    assert covering.covering(rows) is covering


def test_features_of_other_spaces_and_of_equal_builds_make_no_table() -> None:
    assert StaticTable.of(space(), {(17, 1): figures(0), (16, 99): figures(9)}) is None
    assert StaticTable.of(space(), {(16, 1): figures(0), (32, 1): figures(0)}) is None


def test_the_sampler_tries_what_the_machine_code_favours_first_and_works_without_it() -> None:
    known = built(space())
    trials = {}
    for name, features in (("with", known), ("without", {})):
        counts = []
        for seed in range(10):
            sampler, history = SAMPLERS["gp"](space(), (), features), list[Trial]()
            while not history or history[-1].config != {"block": 80, "tile": 5}:
                (config,) = sampler.ask(history, 1, np.random.default_rng([seed, len(history)]))
                history.append(Trial(config, 10 + known[space().key(config)]["scratch"]))
            counts.append(len(history))
        trials[name] = float(np.median(counts))
    assert trials["with"] <= 5 < trials["without"]


def test_only_features_that_differ_are_told() -> None:
    assert list(changed_features({"load": 8, "flops": 2, "store": 1}, {"load": 9, "flops": 2})) == ["load"]
    assert changed_features({"load_width": 1 / 3}, {"load_width": 1 / 3 + 1e-12}) == {}
    now = BuildReport(True, 1.0, False, "", kernels=[KernelResources("k", features={"load": 9, "matrix": 0})])
    before = BuildReport(True, 1.0, False, "", kernels=[KernelResources("k", features={"load": 8, "matrix": 0})])
    (row,) = feature_rows(now, before)
    assert (row.label, row.values[0].value, row.values[0].change) == ("Load instructions", 9, 1)


def measured(run: Run, spills: float, time_us: float | None, parent: Kernel | None = None) -> Kernel:
    """Create a kernel whose build spilled so much, measured where a time is given."""
    kernel = make_kernel(run, f"int k{run.kernels.count()};", parent)
    features = {key: value for key, value in figures(spills).items() if key != "occupancy"}
    resources = KernelResources("k", vgpr_spills=int(spills), occupancy=4, features=features)
    build = to_plain(BuildReport(True, 1.0, False, "", kernels=[resources]))
    result = {"job_id": "1", "status": "correct", "build": build}
    Evaluation.objects.create(
        kernel=kernel, target=run.target, first_of=kernel if time_us else None, effort="full" if time_us else "build",
        state="done", status=EvaluationStatus.CORRECT, time_us=time_us, result=result,
    )  # fmt: skip
    return kernel


def build_of(spills: int, *, nvidia: bool = False) -> JobResult:
    """Return what building a kernel that spills so many registers finds."""
    features = {key: value for key, value in figures(spills).items() if key != "occupancy"}
    told: dict[str, Any] = {"extra": {"spill_store_bytes": 4 * spills}} if nvidia else {"vgpr_spills": spills}
    kernels = [KernelResources("k", occupancy=4, features=features, **told)]
    return JobResult("1", Status.CORRECT, build=BuildReport(True, 1.0, False, "", kernels=kernels))


@pytest.mark.django_db
@pytest.mark.parametrize("nvidia", [False, True])
def test_the_tool_build_warns_an_agent_of_a_kernel_that_will_be_slower_than_its_base(nvidia: bool) -> None:
    run = make_run(make_team())
    kernels = [measured(run, spills, 5 + spills / 2) for spills in (0, 4, 10, 20, 30, 40, 50)]
    turn = CallTurn.objects.create(call=make_question(kernels[0]), number=1)
    slow, fast = (ToolCall.objects.create(turn=turn, run=run, number=n, name="build") for n in (1, 2))
    do_finish_tool_call(run, slow, build_of(45, nvidia=nvidia))
    do_finish_tool_call(run, fast, build_of(0, nvidia=nvidia))
    assert "slower than the base (spills 45 registers): " in slow.result_text
    assert "Predicted: " in fast.result_text and "slower" not in fast.result_text
    told = "180 bytes of spilled registers" if nvidia else "45 spilled registers"
    assert told in slow.summary["headline"]


@pytest.mark.django_db
def test_the_tool_build_predicts_nothing_before_enough_kernels_are_measured() -> None:
    run = make_run(make_team())
    turn = CallTurn.objects.create(call=make_question(measured(run, 0, 5.0)), number=1)
    call = ToolCall.objects.create(turn=turn, run=run, number=1, name="build")
    do_finish_tool_call(run, call, build_of(45))
    assert "Built in" in call.result_text and "redicted" not in call.result_text


@pytest.mark.django_db
def test_a_prompt_tells_what_a_kernel_that_is_not_measured_yet_is_expected_to_take() -> None:
    run = make_run(make_team())
    kernels = [measured(run, spills, 5 + spills / 2) for spills in (0, 4, 10, 20, 30, 40, 50)]
    late = measured(run, 45, None, parent=kernels[0])
    Evaluation.objects.create(kernel=late, target=run.target, first_of=late, effort="full", state="queued")
    history = told_history_of(run)
    view, other = history.kernel(late.key), history.kernel(kernels[0].key)
    assert view is not None and other is not None
    text = sections.kernel(view, history, Delimiters("mark"), "Kernel")
    assert "Not evaluated yet. Predicted" in text and "slower than its parent (spills 45 registers): " in text
    assert "redicted" not in sections.kernel(other, history, Delimiters("mark"), "Kernel")


@pytest.mark.django_db
def test_a_kernel_that_spills_is_predicted_to_be_slower_than_its_parent(client: Client) -> None:
    team = make_team()
    user = make_user(team)
    run = make_run(team, user)
    assert prediction_of(measured(run, 1, 5.0)) is None
    kernels = [measured(run, spills, 5 + spills / 2) for spills in (0, 4, 10, 20, 30, 40, 50)]
    late = measured(run, 45, None, parent=kernels[0])
    found = prediction_of(late)
    assert found is not None and found.slower is not None and found.slower > 2
    assert found.predicted.low_us < 5 + 45 / 2 < found.predicted.high_us
    client.force_login(user)
    page = client.get(f"/runs/{run.pk}/kernels/{late.number}/").content.decode()
    assert "slower than its parent" in page and "(45 spilled registers)" in " ".join(page.split())
    again = client.get(f"/runs/{run.pk}/kernels/{kernels[-1].number}/").content.decode()
    assert "Measured:" in again and "slower than its parent" not in again
