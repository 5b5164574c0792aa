"""Test the papers' strategies, played on a simulated run."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.agents.prompting import build_prompt
from optimizer.search import tree
from optimizer.search.attempts import SoloSettings
from optimizer.search.base import Ask, Draft, Finish, History, KernelView, RecordedAsk, Strategy, StrategySettings
from optimizer.search.baselines import Reflexion, ReflexionSettings, Sampling
from optimizer.search.islands import Islands, IslandsSettings, replay_archive
from optimizer.search.machinery.bandit import Pull, choose_model
from optimizer.search.machinery.crossover import complement, pareto_front
from optimizer.search.machinery.novelty import normalise, same_kernel
from optimizer.search.machinery.stagnation import flat_rounds, is_stagnant
from optimizer.search.scientist import Experiment, Scientist, ScientistSettings, choose, experiments_in
from optimizer.search.stark import Stark, StarkSettings
from runners.job import Language, Source
from runners.problems import load, open_bundle
from tests.optimizer.simulated_run import Answer, SimulatedRun, Time, numbered_answers, seed

GREEDY = tree.Rules(epsilon=0.0)


def random_times(failing: float = 0.3, rng_seed: int = 5) -> Time:
    rng = random.Random(rng_seed)
    return lambda draft: None if rng.random() < failing else rng.uniform(10, 150)


def played(
    strategy: Strategy, settings: StrategySettings, *, budget: int = 12, failing: float = 0.3,
    answer: Answer | None = None, seed_: int = 1,
) -> SimulatedRun:  # fmt: skip
    run = SimulatedRun(
        strategy, settings, answer or numbered_answers(random.Random(3)), random_times(failing), budget, seed_
    )
    return run.play()


# STARK: the paper's parameters


def test_stark_defaults_are_those_of_sections_4_and_5_of_the_paper() -> None:
    """The defaults are those of arXiv 2510.16996: temperatures 0.8/0.1/0.1 (0.7 for the baselines), B = 30, ε = 0.3,
    n_root = 5, dead after more than 3 failing children, r = 2, windows of 5 (sections 4.4, 4.5 and 5)."""
    settings = StarkSettings()
    assert (settings.plan_temperature, settings.code_temperature, settings.debug_temperature) == (0.8, 0.1, 0.1)
    assert (settings.solo_temperature, SoloSettings().temperature) == (0.7, 0.7)
    assert Stark.default_evaluations == 30
    assert (settings.epsilon, settings.n_root, settings.n_child) == (0.3, 5, 3)
    assert (settings.leaderboard, settings.window_cap) == (2, 5)


def test_scientist_asks_for_ten_avenues_and_five_experiments_as_the_paper_does() -> None:
    """The numbers are those of arXiv 2506.20807, section 3.2."""
    settings = ScientistSettings()
    assert (settings.avenues, settings.experiments) == (10, 5)


# STARK: selection


def node(key: str, parent: str | None = "root", score: float | None = None) -> tree.Node:
    return tree.Node(key, parent, float("inf") if score is None else score, failed=score is None)


def chain(*nodes: tree.Node, rules: tree.Rules = GREEDY) -> tree.Tree:
    return tree.Tree([tree.Node("root", None, 100.0), *nodes], rules)


def test_the_root_with_five_children_is_not_chosen_though_it_is_the_fastest() -> None:
    children = [node(f"c{n}", "root", 200.0 + n) for n in range(5)]
    assert tree.select(chain(*children), random.Random(0)).key == "c0"
    assert tree.select(chain(*children[:4]), random.Random(0)).key == "root"


def test_a_node_with_three_failing_children_may_be_chosen_and_with_four_may_not() -> None:
    best = node("best", "root", 10.0)
    failing = [node(f"f{n}", "best") for n in range(4)]
    assert tree.select(chain(best, *failing[:3]), random.Random(0)).key == "best"
    assert tree.select(chain(best, *failing), random.Random(0)).key != "best"


def test_one_working_child_keeps_a_branch_alive() -> None:
    best = node("best", "root", 10.0)
    children = [node(f"f{n}", "best") for n in range(4)] + [node("ok", "best", 50.0)]
    assert tree.select(chain(best, *children), random.Random(0)).key == "best"


def test_exploration_chooses_only_leaves_and_all_of_them() -> None:
    grown = chain(node("a", "root", 10.0), node("b", "a", 20.0), node("c", "a"), rules=tree.Rules(epsilon=1.0))
    chosen = {tree.select(grown, random.Random(n)).key for n in range(60)}
    assert chosen == {"b", "c"}


def test_nothing_eligible_falls_back_to_the_best_correct_node_and_the_root_last() -> None:
    pending = tree.Node("a1", "root", pending=True)
    assert tree.select(chain(pending, rules=replace(GREEDY, n_root=1)), random.Random(0)).key == "root"
    everything_dead = replace(GREEDY, n_root=1, n_child=-1)
    slow, fast = node("slow", "root", 90.0), node("fast", "root", 10.0)
    assert tree.select(chain(slow, fast, rules=everything_dead), random.Random(0)).key == "fast"


@st.composite
def trees(draw: st.DrawFn) -> tree.Tree:
    size = draw(st.integers(0, 40))
    nodes = [tree.Node("root", None, 100.0)]
    for n in range(size):
        parent = nodes[draw(st.integers(0, n))].key
        score = draw(st.one_of(st.none(), st.floats(1, 1e6)))
        nodes.append(node(f"n{n}", parent, score))
    return tree.Tree(nodes)


@given(trees(), st.integers(0, 1000))
def test_selection_never_takes_a_throttled_root_or_a_dead_branch_while_anything_else_is_eligible(
    grown: tree.Tree, number: int
) -> None:
    chosen = tree.select(grown, random.Random(number))
    if any(grown.eligible(n) for n in grown.nodes):
        assert grown.eligible(chosen)


@given(trees(), st.integers(0, 1000), st.data())
def test_windows_hold_the_node_first_no_node_twice_and_at_most_five(
    grown: tree.Tree, number: int, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from([n.key for n in grown.nodes]))
    for window in (tree.plan_window, tree.code_window, tree.debug_window):
        keys = [n.key for n in window(grown, key, random.Random(number))]
        assert keys[0] == key and len(keys) == len(set(keys)) <= tree.WINDOW_CAP


@given(trees(), st.data())
def test_uncapped_windows_are_exactly_the_sets_of_the_paper(grown: tree.Tree, data: st.DataObject) -> None:
    """Section 4.5 defines plan = {i, root} ∪ D(i) ∪ Top-r(C) outside i's subtree; code = {i, root} ∪ D(i) ∪ children of
    S(i); debug = {i, root} ∪ S(i)."""
    roomy = tree.Tree(grown.nodes, tree.Rules(window_cap=10_000))
    key = data.draw(st.sampled_from([n.key for n in grown.nodes]))
    rng = random.Random(0)
    children = {n.key for n in roomy.nodes if n.parent == key}
    siblings = {n.key for n in roomy.siblings(key)}
    base = {key, "root"}
    assert {n.key for n in tree.debug_window(roomy, key, rng)} == base | siblings
    cousins = {n.key for n in roomy.nodes if n.parent in siblings}
    assert {n.key for n in tree.code_window(roomy, key, rng)} == base | children | cousins
    top = {n.key for n in tree.leaderboard(roomy, roomy.subtree(key))}
    assert {n.key for n in tree.plan_window(roomy, key, rng)} == base | children | top
    assert len(top) <= 2 and not top & roomy.subtree(key)


@pytest.mark.timing
def test_a_tree_of_ten_thousand_nodes_is_selected_from_in_under_ten_milliseconds() -> None:
    rng = random.Random(1)
    nodes = [tree.Node("root", None, 100.0)]
    for n in range(9_999):
        nodes.append(node(f"n{n}", nodes[rng.randrange(len(nodes))].key, rng.choice([None, rng.uniform(1, 99)])))
    durations = []
    # The fastest of many: what runs beside it shares the processor's caches.
    for attempt in range(160):
        grown = tree.Tree(nodes)  # nothing cached
        start = time.process_time()  # what the processor spent: the machine may have other work
        tree.select(grown, random.Random(attempt))
        durations.append(time.process_time() - start)
    assert min(durations) < 0.010


# STARK: the run


def test_stark_spends_its_budget_and_debug_attempts_count() -> None:
    run = played(Stark(), StarkSettings(), budget=12, failing=0.5)
    attempts = [kernel for kernel in run.kernels if kernel.key.startswith("a")]
    assert len(attempts) == 12
    assert run.finished
    assert any(call.role == "debug" for call in run.calls.values())
    assert any(call.role == "code" for call in run.calls.values())


def test_stark_sends_failures_to_the_debugger_whose_child_inherits_plan_and_anchors() -> None:
    run = played(Stark(), StarkSettings(), budget=20, failing=0.6)
    debugged = [k for k in run.kernels if f"{k.key}.debug" in run.calls and run.hypotheses]
    for kernel in debugged:
        parent = next(k for k in run.kernels if k.key == kernel.parent_keys[0])
        assert parent.failed
        assert kernel.meta == parent.meta
    assert debugged


def test_stark_asks_with_the_temperatures_of_its_settings() -> None:
    run = played(Stark(), StarkSettings(plan_temperature=0.9))
    assert {ask.temperature for ask in run.asked if ask.role == "plan"} == {0.9}
    assert {ask.temperature for ask in run.asked if ask.role == "code"} == {0.1}


def test_stark_without_search_revises_the_last_attempt_and_without_agents_asks_one() -> None:
    no_search = played(Stark(), StarkSettings(search=False), failing=0)
    assert [k.parent_keys[0] for k in no_search.kernels[3:]] == [k.key for k in no_search.kernels[2:-1]]
    assert {ask.role for ask in no_search.asked} == {"plan", "code"}
    no_agents = played(Stark(), StarkSettings(agents=False))
    assert {ask.role for ask in no_agents.asked} == {"solo"}


def test_sampling_always_starts_from_the_reference_and_reflexion_from_the_last_attempt() -> None:
    sampling = played(Sampling(), SoloSettings())
    assert {k.parent_keys for k in sampling.kernels[2:]} == {("seed.reference",)}
    reflexion = played(Reflexion(), ReflexionSettings())
    assert [k.parent_keys[0] for k in reflexion.kernels[3:]] == [k.key for k in reflexion.kernels[2:-1]]


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ({"report": "Rows in\nparallel. 1.5 times\nas fast."}, "Rows in parallel"),
        ({"report": "Past the caches, e.g.next"}, "Past the caches, e.g.next"),
        ({"report": "One. Two.", "title": "Mine"}, "Mine"),
        ({"report": "word " * 99}, " ".join(["word"] * 40) + "…"),
        ({"report": "x" * 300}, "x" * 199 + "…"),
        ({"report": ""}, ""),
    ],
)
def test_a_lone_writers_kernel_has_its_title_or_the_first_sentence_of_its_report(
    answer: dict[str, str], title: str
) -> None:
    said = {"source": "int one;", **answer}
    run = SimulatedRun(Sampling(), SoloSettings(), lambda _: said, random_times(0), 1, 1).play()
    assert run.kernels[-1].title == title


def test_concurrency_bounds_open_evaluations_and_attempts_run_side_by_side() -> None:
    run = played(Stark(), StarkSettings(concurrency=3), budget=9)
    assert run.most_open == 3
    assert len(run.kernels) == 2 + 9


def writers_asked(run: SimulatedRun) -> int:
    """Count the questions whose answer is a kernel."""
    return sum(ask.role in {"code", "debug", "solo", "writer"} for ask in run.asked)


@pytest.mark.parametrize("budget", [1, 2, 6])
@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (Stark(), StarkSettings(concurrency=4)),
        (Sampling(), SoloSettings(concurrency=4)),
        (Islands(), IslandsSettings(concurrency=4)),
    ],
)
def test_no_more_kernels_are_asked_for_than_evaluations_are_left(
    strategy: Strategy, settings: StrategySettings, budget: int
) -> None:
    run = played(strategy, settings, budget=budget)
    assert writers_asked(run) == budget == len(run.kernels) - 2
    assert run.most_open == min(4, budget)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("budget", [3, 4, 5])
def test_a_repair_takes_no_evaluation_from_a_kernel_that_is_being_written(budget: int, concurrency: int) -> None:
    run = played(Scientist(), ScientistSettings(concurrency=concurrency), budget=budget, failing=1.0)
    assert writers_asked(run) == budget == len(run.kernels) - 2
    assert {"r1.k1", "r1.k5", "r1.k4"} <= {kernel.key for kernel in run.kernels}
    assert run.finished, "the round is learnt from"


def asked_by(strategy: Strategy, history: History) -> list[str]:
    return [step.key for step in strategy.decide(history) if isinstance(step, Ask)]


def test_a_replay_asks_what_was_recorded_though_fewer_evaluations_are_left() -> None:
    settings = SoloSettings(concurrency=4)
    run = SimulatedRun(Sampling(), settings, numbered_answers(random.Random(3)), random_times(), budget=1)
    recorded = {f"a{n}.solo": RecordedAsk("solo", {"node": "seed.reference"}, "KernelAnswer") for n in range(1, 5)}
    assert asked_by(Sampling(), replace(run.history(), recorded=recorded)) == list(recorded)

    spent = played(Scientist(), ScientistSettings(), budget=3, failing=1.0).history()
    repair = {"r1.w1.fix1": RecordedAsk("writer", {}, "KernelAnswer")}
    assert asked_by(Scientist(), replace(spent, recorded=repair)) == list(repair)


def test_a_replay_opens_no_attempt_that_was_not_recorded() -> None:
    run = played(Sampling(), SoloSettings(concurrency=3), budget=2)
    recorded = {key: RecordedAsk("solo", call.context, "KernelAnswer") for key, call in run.calls.items()}
    told = replace(run.history(), evaluations_left=6, recorded=recorded)
    assert [step.reason for step in Sampling().decide(told) if isinstance(step, Finish)] == [
        "every attempt of the recording was made"
    ]
    under_way = {**told.calls, "a2.solo": replace(told.calls["a2.solo"], finished=False, answer=None)}
    without = tuple(kernel for kernel in told.kernels if kernel.key != "a2")
    assert Sampling().decide(replace(told, calls=under_way, kernels=without)) == []


def test_a_replayed_attempt_waits_for_the_kernels_that_its_recording_built_on() -> None:
    run = played(Sampling(), SoloSettings(concurrency=2), budget=2)
    history = replace(run.history(), evaluations_left=6)
    first = next(kernel for kernel in run.kernels if kernel.key == "a1")
    on_the_first = {"node": "a1", "window": ["seed.reference", "a1"]}
    recorded = {
        **{key: RecordedAsk("solo", call.context, "KernelAnswer") for key, call in run.calls.items()},
        "a3.solo": RecordedAsk("solo", on_the_first, "KernelAnswer"),
    }

    def asks_with(*kernels: KernelView) -> list[tuple[str, Any]]:
        others = [kernel for kernel in run.kernels if kernel.key != "a1"]
        told = replace(history, kernels=(*others, *kernels), recorded=recorded)
        return [(step.key, step.context.get("node")) for step in Sampling().decide(told) if isinstance(step, Ask)]

    # In the recording the first attempt had ended before the third began; here the second is the quicker one.
    assert asks_with() == [], "its kernel is being written"
    assert asks_with(replace(first, finished=False, status=None, time_us=None)) == []
    assert asks_with(first)[0] == ("a3.solo", "a1")


def test_a_replayed_attempt_waits_for_one_that_waits_itself() -> None:
    run = played(Sampling(), SoloSettings(concurrency=3), budget=1)
    recorded = {
        **{key: RecordedAsk("solo", call.context, "KernelAnswer") for key, call in run.calls.items()},
        "a2.solo": RecordedAsk("solo", {"node": "a1", "window": ["a1"]}, "KernelAnswer"),
        "a3.solo": RecordedAsk("solo", {"node": "a2", "window": ["a2"]}, "KernelAnswer"),
    }
    measured = [replace(kernel, finished=kernel.key != "a1") for kernel in run.kernels]
    told = replace(run.history(), evaluations_left=6, kernels=tuple(measured), recorded=recorded)
    # The second waits for the first and is not opened, so that nothing of it is being written yet.
    assert asked_by(Sampling(), told) == []


@pytest.mark.parametrize("key", ["a2", "a3", "a9", "a\u00b2"])
def test_a_replayed_attempt_waits_for_nothing_that_cannot_come_before_it(key: str) -> None:
    run = played(Sampling(), SoloSettings(concurrency=1), budget=1)
    recorded = {
        **{key: RecordedAsk("solo", call.context, "KernelAnswer") for key, call in run.calls.items()},
        "a2.solo": RecordedAsk("solo", {"node": "a1", "window": ["a1", key]}, "KernelAnswer"),
        "a3.solo": RecordedAsk("solo", {"node": "a1", "window": ["a1"]}, "KernelAnswer"),
        "a\u00b2.solo": RecordedAsk("solo", {"node": "a1", "window": ["a1"]}, "KernelAnswer"),
    }
    told = replace(run.history(), evaluations_left=6, recorded=recorded)
    assert asked_by(Sampling(), told)[0] == "a2.solo"


def test_agents_that_never_answer_end_the_run_instead_of_asking_for_ever() -> None:
    run = played(Stark(), StarkSettings(), answer=lambda ask: None)
    assert "5 times in a row" in run.finished
    assert len(run.asked) == 5


def test_a_repeated_kernel_is_sent_back_with_its_original_named_and_never_evaluated_twice() -> None:
    same = {"source": "int same;", "report": ""}
    run = played(Sampling(), SoloSettings(), answer=lambda ask: same, failing=0)
    assert [k.source.text for k in run.kernels[2:]] == ["int same;"]
    assert {ask.context.get("duplicate_of") for ask in run.asked} == {None, "a1"}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (Stark(), StarkSettings(concurrency=2)),
        (Scientist(), ScientistSettings()),
        (Islands(), IslandsSettings()),
        (Reflexion(), ReflexionSettings()),
    ],
)
def test_deciding_again_on_the_same_history_says_the_same(strategy: Strategy, settings: StrategySettings) -> None:
    run = SimulatedRun(strategy, settings, numbered_answers(random.Random(3)), random_times(), 9)
    for _ in range(60):
        first, second = strategy.decide(run.history()), strategy.decide(run.history())
        assert first == second
        for step in first:
            run.carry_out(step)
        again = [step for step in strategy.decide(run.history()) if isinstance(step, Ask | Draft) and step in first]
        assert not again
        run.evaluate_open()


# GPU Kernel Scientist


def test_three_of_five_are_chosen_most_innovative_then_highest_maximum_then_highest_minimum() -> None:
    def experiment(index: int, low: float, high: float, innovation: int) -> Experiment:
        return Experiment(index, str(index), "", "", low, high, innovation)

    five = [
        experiment(1, 1, 90, 95),
        experiment(2, 5, 80, 10),
        experiment(3, 30, 40, 20),
        experiment(4, 20, 60, 94),
        experiment(5, 0, 1, 0),
    ]
    assert [e.index for e in choose(five)] == [1, 2, 3]


@pytest.mark.parametrize(("wanted", "lanes"), [(1, 1), (3, 3), (5, 5), (9, 5)])
def test_a_run_may_write_fewer_or_more_of_the_experiments(wanted: int, lanes: int) -> None:
    run = played(Scientist(), ScientistSettings(chosen=wanted), budget=lanes, failing=0)
    assert sum(ask.role == "writer" for ask in run.asked) == lanes
    assert sum(h.kind == "experiment" and h.chosen for h in run.hypotheses.values()) == lanes


def test_a_predicted_range_given_the_wrong_way_round_or_negative_is_kept_in_order() -> None:
    item = {"description": "d. more", "rubric": "r", "performance": [12, -3], "innovation": 5}
    (experiment,) = experiments_in({"experiments": [item]})
    assert (experiment.gain_min, experiment.gain_max, experiment.title) == (-3, 12, "d")


def test_a_scientist_round_is_select_design_three_writers_findings() -> None:
    run = played(Scientist(), ScientistSettings(), budget=3, failing=0)
    roles = [ask.role for ask in run.asked]
    assert roles[:5] == ["digest", "findings", "selector", "designer", "writer"]
    assert roles.count("writer") == 3
    assert [k.parent_keys for k in run.kernels[2:]] == [("seed.reference", "seed.naive")] * 3
    kinds = [h.kind for h in run.hypotheses.values()]
    assert (kinds.count("avenue"), kinds.count("experiment")) == (10, 5)
    assert sum(h.chosen for h in run.hypotheses.values()) == 3


def test_the_designer_is_asked_for_as_many_avenues_and_experiments_as_the_run_wants() -> None:
    run = played(Scientist(), ScientistSettings(avenues=4, experiments=7), budget=3)
    ask = next(ask for ask in run.asked if ask.role == "designer")
    problem = open_bundle(load("softmax_rows"))
    prompt = build_prompt(ask, replace(run.history(), problem=problem)).messages[-1]["content"]
    assert prompt.endswith("Answer with 4 avenues and 7 experiments.")


def test_a_failed_kernel_goes_back_to_its_writer_at_most_twice() -> None:
    run = played(Scientist(), ScientistSettings(), budget=9, failing=1.0)
    lanes = {k.key for k in run.kernels[2:]}
    assert lanes == {f"r1.k{n}{fix}" for n in (1, 5, 4) for fix in ("", ".fix1", ".fix2")}
    failed = [ask.context["failed"] for ask in run.asked if ask.key == "r1.w1.fix2"]
    assert failed == ["r1.k1.fix1"]


def test_after_five_flat_rounds_the_designer_is_told_to_leave_the_family() -> None:
    run = played(Scientist(), ScientistSettings(retries=0), budget=24, failing=1.0)
    stagnant = [ask.context["stagnant"] for ask in run.asked if ask.role == "designer"]
    assert stagnant[:5] == [False] * 5
    assert stagnant[5:] and all(stagnant[5:])


def test_the_selectors_table_is_frozen_when_its_round_begins() -> None:
    run = played(Scientist(), ScientistSettings(), budget=6, failing=0)
    second = run.calls["r2.select"].context["population"]
    assert set(second) == {"seed.reference", "seed.naive", "r1.k1", "r1.k5", "r1.k4"}


# islands, bandit and the rest of the machinery


def test_islands_fill_and_elites_migrate_to_the_next_island() -> None:
    settings = IslandsSettings(islands=4, migration=4)
    run = played(Islands(), settings, budget=24, failing=0.1)
    archive = replay_archive(run.history(), settings)
    own = [{k.key for k in cells.values() if k.key.startswith("a")} for cells in archive.islands]
    assert all(own)
    assert archive.migrations > 0
    foreign = [key for island, keys in enumerate(own) for key in keys if (int(key[1:]) - 1) % 4 != island]
    assert foreign


def two_shapes(key: str, number: int, a: float, b: float) -> KernelView:
    kernel = seed(key, (a * b) ** 0.5, number)
    return KernelView(**{**kernel.__dict__, "times_us": {"a": a, "b": b}})


def test_a_specialist_of_one_shape_survives_on_the_pareto_front_and_complements_the_base() -> None:
    base, specialist, worse = (
        two_shapes("base", 0, 10, 10),
        two_shapes("special", 1, 5, 90),
        two_shapes("worse", 2, 11, 12),
    )
    assert pareto_front([base, specialist, worse]) == [base, specialist]
    assert complement(base, [base, specialist, worse]) == specialist
    assert complement(base, [worse]) is None


def test_the_bandit_tries_every_model_then_prefers_the_cheap_one_at_equal_reward() -> None:
    models = ["dear", "cheap"]
    assert choose_model(models, []) == "dear"
    assert choose_model(models, [Pull("dear", 0.5, 1.0)]) == "cheap"
    pulls = [Pull("dear", 0.5, 1.0), Pull("cheap", 0.5, 0.1)] * 10
    assert choose_model(models, pulls) == "cheap"
    unpriced = [Pull("dear", 0.9, None), Pull("cheap", 0.1, 0.1)] * 10
    assert choose_model(models, unpriced) == "dear"


def test_comments_and_white_space_make_no_new_kernel_but_tunables_do() -> None:
    one = Source(Language.CPP, "int  f( ) { /* a */ return 1; } // b")
    two = Source(Language.CPP, "int f() {\n  return 1;\n}\n")
    assert same_kernel(one, two)
    assert not same_kernel(one, Source(Language.CPP, two.text, {"TILE": 4}))
    assert normalise(Language.CPP, 'char* s = "// kept";') != normalise(Language.CPP, 'char* s = "";')
    assert normalise(Language.PYTHON, "if x:\n    y  # c\n") != normalise(Language.PYTHON, "if x:\ny\n")


@pytest.mark.parametrize(
    ("times", "flat"),
    [([], 0), ([10.0], 0), ([10.0, 9.0], 0), ([10.0, 9.95, None, 10.0], 3), ([None, None], 2)],
)
def test_a_round_is_flat_unless_it_gains_one_per_cent(times: list[float | None], flat: int) -> None:
    assert flat_rounds(times) == flat
    assert is_stagnant([10.0] + [None] * 5)
