"""Test what every sampler promises, whoever wrote it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from optimizer.search.samplers import DEFAULT, SAMPLERS, Sampler, Trial
from optimizer.search.space import Config, Space

SPACE = Space.of(
    {"tile": [1, 2, 4, 8, 16, 32], "unroll": [1, 2, 3, 4], "order": ["row", "column"], "vector": [True, False]},
    ["tile * unroll <= 64", "vector == 0 or tile >= 4"],
)


def time_of(config: Config) -> float:
    """Return a time that is short where the tile is 16, loops are unrolled by 2 and the order is by row."""
    distance = abs(np.log2(float(config["tile"])) - 4) + abs(float(config["unroll"]) - 2)
    return float(10 * 2**distance * (1.5 if config["order"] == "column" else 1.0))


def generator(seed: int, count: int) -> np.random.Generator:
    return np.random.default_rng([seed, count])


_searched: dict[tuple[type[Sampler], int], list[Trial]] = {}
"""The longest search by a sampler without guesses and a seed. A shorter one is its beginning, as the replay shows."""


def searched(sampler: Sampler, count: int, seed: int = 0) -> list[Trial]:
    history = _searched.setdefault((type(sampler), seed), [])
    while len(history) < count and (asked := sampler.ask(history, 1, generator(seed, len(history)))):
        history.append(Trial(asked[0], time_of(asked[0])))
    return history[:count]


@pytest.fixture(params=sorted(SAMPLERS))
def sampler(request: pytest.FixtureRequest) -> Sampler:
    return SAMPLERS[request.param](SPACE)


def test_our_own_sampler_is_the_default() -> None:
    assert DEFAULT == "gp"


def test_samplers_are_registered_under_their_names() -> None:
    assert {name: kind.name for name, kind in SAMPLERS.items()} == {name: name for name in SAMPLERS}


def test_strategies_load_without_the_libraries_that_only_a_search_needs() -> None:
    program = "import sys, optimizer.search; print(sorted({'scipy', 'optuna', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_same_history_and_seed_give_the_same_suggestions(sampler: Sampler) -> None:
    history = searched(sampler, 14)
    again = type(sampler)(SPACE)
    assert sampler.ask(history, 2, generator(5, 1)) == again.ask(history, 2, generator(5, 1))


def test_a_replay_after_a_crash_repeats_the_whole_search(sampler: Sampler) -> None:
    whole = searched(sampler, 15, seed=3)
    resumed = list(whole[:9])
    while len(resumed) < 15:
        (config,) = type(sampler)(SPACE).ask(resumed, 1, generator(3, len(resumed)))
        resumed.append(Trial(config, time_of(config)))
    assert resumed == whole


def test_another_seed_starts_elsewhere(sampler: Sampler) -> None:
    starts = {SPACE.key(sampler.ask([], 1, generator(seed, 0))[0]) for seed in range(12)}
    assert len(starts) > 3


def test_nothing_is_suggested_twice_nor_invalid_until_the_space_is_exhausted() -> None:
    for name in ("gp", "random", "tpe"):
        history = searched(SAMPLERS[name](SPACE), 1000)
        keys = {SPACE.key(trial.config) for trial in history}
        assert len(keys) == len(history) == len(SPACE.rows)
        assert all(SPACE.valid(trial.config) for trial in history)
        assert SAMPLERS[name](SPACE).ask(history, 3, generator(0, 0)) == []


def test_a_batch_holds_different_configurations_and_none_that_is_pending(sampler: Sampler) -> None:
    history = searched(sampler, 13)
    pending = [Trial(config, pending=True) for config in sampler.ask(history, 3, generator(1, 0))]
    batch = sampler.ask([*history, *pending], 4, generator(1, 1))
    keys = [SPACE.key(config) for config in [*batch, *(trial.config for trial in [*history, *pending])]]
    assert len(batch) == 4
    assert len(set(keys)) == len(keys)


def test_a_batch_larger_than_what_is_left_takes_what_is_left() -> None:
    for name in ("gp", "random"):
        history = searched(SAMPLERS[name](SPACE), len(SPACE.rows) - 2)
        assert len(SAMPLERS[name](SPACE).ask(history, 5, generator(0, 0))) == 2


def test_first_guesses_come_first_and_only_once(sampler: Sampler) -> None:
    first: Config = {"tile": 16, "unroll": 2, "order": "row", "vector": True}
    second: Config = {"vector": False, "order": "column", "unroll": 1, "tile": 1}
    guided = type(sampler)(SPACE, [first, second, first])
    assert guided.ask([], 2, generator(0, 0)) == [first, second]
    (third,) = guided.ask([Trial(first, 1.0), Trial(second, pending=True)], 1, generator(0, 2))
    assert third not in (first, second)


def test_guesses_that_the_space_does_not_hold_are_passed_over(sampler: Sampler) -> None:
    broken: Config = {"tile": 32, "unroll": 4, "order": "row", "vector": True}
    unlisted: Config = {"tile": 5, "unroll": 1, "order": "row", "vector": False}
    partial: Config = {"tile": 4}
    assert type(sampler)(SPACE, [broken, unlisted, partial]).first_guesses == ()


def test_a_history_of_failures_alone_still_gets_a_suggestion(sampler: Sampler) -> None:
    history = [Trial(SPACE.config(row)) for row in SPACE.rows[:15]]
    (config,) = sampler.ask(history, 1, generator(0, 15))
    assert SPACE.valid(config)
    assert config not in [trial.config for trial in history]


def test_trials_of_another_space_are_not_looked_at(sampler: Sampler) -> None:
    history = searched(sampler, 13)
    foreign = Trial({"tile": 7, "unroll": 1, "order": "row", "vector": False}, 0.001)
    assert sampler.ask([*history, foreign], 1, generator(0, 0)) == sampler.ask(history, 1, generator(0, 0))


@pytest.mark.parametrize("time_us", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_no_time_is_refused(time_us: float) -> None:
    with pytest.raises(ValueError, match="failure has None"):
        Trial({"tile": 1}, time_us)
