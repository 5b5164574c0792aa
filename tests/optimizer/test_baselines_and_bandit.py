"""Test what the baselines are shown, and what the bandit makes of calls that have no cost."""

from __future__ import annotations

import random

from optimizer.search.base import Ask, Draft, Strategy
from optimizer.search.baselines import Reflexion, Sampling
from optimizer.search.machinery.bandit import Pull, choose_model
from tests.optimizer.simulated_run import SimulatedRun, numbered_answers


def asked(strategy: Strategy) -> list[Ask]:
    rng = random.Random(1)

    def time_us(draft: Draft) -> float:
        return 100 * rng.uniform(0.5, 1.5)

    return SimulatedRun(strategy, strategy.Settings(), numbered_answers(rng), time_us, budget=8).play().asked


def test_every_sample_is_written_from_the_reference_alone() -> None:
    assert [tuple(ask.context["window"]) for ask in asked(Sampling())] == [("seed.reference",)] * 8


def test_reflexion_sees_the_reference_and_what_it_revises_and_nothing_else_of_the_tree() -> None:
    windows = [tuple(ask.context["window"]) for ask in asked(Reflexion()) if ask.role == "solo"]
    assert windows == [("seed.reference",), *((f"a{number}", "seed.reference") for number in range(1, 8))]


def test_one_call_without_a_cost_does_not_make_the_bandit_blind_to_costs() -> None:
    pulls = [Pull("dear", 0.5, 1.0), Pull("cheap", 0.5, 0.1)] * 10
    assert choose_model(["dear", "cheap"], [*pulls, Pull("dear", 0.5, None)]) == "cheap"


def test_a_model_that_never_answers_is_not_taken_for_a_cheap_one() -> None:
    assert choose_model(["dear", "broken"], [Pull("dear", 0.5, 1.0), Pull("broken", 0.0, None)] * 10) == "dear"
