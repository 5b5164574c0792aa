"""Test what a search gains from measurements of the same space elsewhere, and that misleading ones are let go."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.search.samplers import SAMPLERS, Trial
from optimizer.search.samplers.base import FEWEST_RELATED, RelatedTask
from optimizer.search.samplers.features import Features
from optimizer.search.samplers.targets import Targets
from optimizer.search.samplers.transfer import MOST, InformedProcess, Transfer, _packed
from optimizer.search.space import Config, Space

SPACE = Space.of({"block": [16, 32, 48, 64, 96, 128, 192, 256], "tile": [1, 2, 3, 4, 5, 6, 7, 8], "pad": [0, 1]})
CONFIGS = SPACE.enumerate_valid()


def time_of(config: Config) -> float:
    """Return a time that is shortest for one block, tile and padding."""
    block, tile = float(config["block"]), float(config["tile"])
    return float(1 + abs(np.log2(block / 96)) + abs(tile - 5) + 2 * float(config["pad"]))


def similar(config: Config) -> float:
    """Return the time on another device: slower, and with other proportions."""
    return float(7 * time_of(config) ** 1.5 + 0.1 * float(config["tile"]))


def opposite(config: Config) -> float:
    return 100 / time_of(config)


def task(times: object = similar, count: int = 40) -> RelatedTask:
    assert callable(times)
    chosen = np.random.default_rng(2).permutation(len(CONFIGS))[:count]
    return RelatedTask("on MI210", tuple(Trial(CONFIGS[at], times(CONFIGS[at])) for at in chosen))


def evaluations_to_best(related: list[RelatedTask], seed: int, most: int = 60) -> int:
    best, history = min(map(time_of, CONFIGS)), list[Trial]()
    sampler = SAMPLERS["gp"](SPACE, related=related)
    while len(history) < most:
        (config,) = sampler.ask(history, 1, np.random.default_rng([seed, len(history)]))
        history.append(Trial(config, time_of(config)))
        if time_of(config) == best:
            break
    return len(history)


def observed(count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Return so many rows of the search and their targets."""
    rows = SPACE.rows[np.random.default_rng(5).permutation(len(CONFIGS))[:count]]
    return rows, Targets.of(np.array([time_of(SPACE.config(row)) for row in rows])).values


def test_a_search_with_a_related_task_needs_a_fraction_of_the_evaluations() -> None:
    alone = [evaluations_to_best([], seed) for seed in range(4)]
    informed = [evaluations_to_best([task()], seed) for seed in range(4)]
    assert max(informed) < min(alone) and sum(informed) < sum(alone) / 2


def test_a_misleading_task_is_let_go_and_costs_a_few_evaluations() -> None:
    alone = [evaluations_to_best([], seed) for seed in range(4)]
    misled = [evaluations_to_best([task(opposite)], seed) for seed in range(4)]
    assert np.mean(misled) < np.mean(alone) + 6


def test_the_first_configuration_is_the_fastest_of_the_related_task() -> None:
    sampler = SAMPLERS["gp"](SPACE, related=[task(count=len(CONFIGS))])
    default = Trial(SPACE.defaults(), time_of(SPACE.defaults()))
    for history in ([], [default]):
        (config,) = sampler.ask(history, 1, np.random.default_rng(0))
        assert time_of(config) == min(map(time_of, CONFIGS))
    assert len(sampler.ask([default], 4, np.random.default_rng(0))) == 4


def test_the_weight_of_a_task_follows_its_rank_correlation_with_what_was_measured() -> None:
    rows, targets = observed()
    good, bad = (Transfer.of(SPACE, [task(times)]) for times in (similar, opposite))
    assert good is not None and bad is not None
    assert good.prior(rows, targets).correlation > 0.8
    assert bad.prior(rows, targets).correlation == 0
    assert not bad.prior(rows, targets).mean(SPACE.rows).any(), "without a correlation there is no prior mean"
    both = Transfer.of(SPACE, [task(opposite), task()])
    assert both is not None
    assert both.prior(rows, targets).weights == pytest.approx([0, 1])


def test_an_informed_process_returns_what_it_observed_and_follows_the_task_elsewhere() -> None:
    transfer = Transfer.of(SPACE, [task()])
    assert transfer is not None
    rows, targets = observed()
    process = InformedProcess.fit(transfer, Features.of(SPACE), rows, targets)
    mean, _ = process.predict(rows)
    assert mean == pytest.approx(targets, abs=0.25)
    assert process.targets == pytest.approx(targets)
    predicted, true = process.predict(SPACE.rows)[0], [time_of(config) for config in CONFIGS]
    assert np.corrcoef(predicted, np.log(true))[0, 1] > 0.9
    assert len(process.fantasise(SPACE.rows[0]).targets) == len(targets) + 1


def test_too_few_measurements_or_those_of_another_space_teach_nothing() -> None:
    assert Transfer.of(SPACE, [task(count=FEWEST_RELATED - 1)]) is None
    other = RelatedTask("", tuple(Trial({"block": 17, "tile": 1, "pad": 0}, 1.0 + n) for n in range(20)))
    assert Transfer.of(SPACE, [other, RelatedTask("", ())]) is None


def test_of_many_measurements_the_fastest_and_a_sample_of_the_others_are_fitted() -> None:
    measured: dict[tuple[int, ...], float] = {(row,): float(1000 - row) for row in range(1000)}
    chosen = [time for _, time in _packed(measured)]
    assert len(chosen) == MOST and chosen[: MOST // 2] == sorted(measured.values())[: MOST // 2]
    assert chosen == sorted(set(chosen)) and chosen[-1] == 1000.0
    assert len(_packed({(row,): 1.0 + row for row in range(20)})) == 20
