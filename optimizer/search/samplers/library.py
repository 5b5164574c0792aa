"""Adapt Optuna's samplers to our interface, for comparison and for people who prefer them.

Each question builds a study from the history, so that these samplers keep no state either. Optuna knows no
constraints between parameters. An invalid suggestion is reported to it as slow as the slowest trial so far, a
repeated one with its known outcome, and it is asked again. After `patience` such answers in a row a random
configuration is taken.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from optimizer.search.samplers.base import Sampler, Trial
from optimizer.search.samplers.candidates import draw_rows, rows_of, untried
from optimizer.search.space import Config

optuna.logging.set_verbosity(optuna.logging.WARNING)


class LibrarySampler(Sampler):
    """Wrap one of Optuna's samplers over positions in the value lists.

    It minimises the logarithm of the time; failures count as the slowest configuration so far.
    """

    patience = 200

    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        told, chosen = list(history), list[Config]()
        for _ in range(n):
            if (config := self._fresh(told, rng) or self._any(told, rng)) is None:
                break
            chosen.append(config)
            told.append(Trial(config, pending=True))
        return chosen

    def _fresh(self, history: Sequence[Trial], rng: np.random.Generator) -> Config | None:
        """Return a valid and new configuration of the library's choice, or None after `patience` failures."""
        worst = max((trial.time_us for trial in history if trial.time_us is not None), default=1.0)
        # Told again with its known outcome, a repeated suggestion at least does not mislead the sampler.
        known = {self.space.row(trial.config): _value(trial, worst) for trial in history}
        study = self._study(history, worst, rng)
        for _ in range(self.patience):
            trial = study.ask(self._distributions)
            row = tuple(int(trial.params[name]) for name in self.space.names)
            config = self.space.config(row)
            if row not in known and self.space.valid(config):
                return config
            study.tell(trial, known.get(row, float(np.log(worst))))
        return None

    def _any(self, history: Sequence[Trial], rng: np.random.Generator) -> Config | None:
        rows = draw_rows(untried(self.space, rows_of(self.space, history)), 1, rng)
        return self.space.config(rows[0]) if len(rows) else None

    def _study(self, history: Sequence[Trial], worst: float, rng: np.random.Generator) -> optuna.Study:
        with warnings.catch_warnings():
            # Optuna marks some sampler options as experimental at every construction.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(sampler=self._sampler(int(rng.integers(2**31))))
        study.add_trials([self._told(trial, worst) for trial in history])
        return study

    def _told(self, trial: Trial, worst: float) -> FrozenTrial:
        """Convert a trial to Optuna's form."""
        row = self.space.row(trial.config)
        params = dict(zip(self.space.names, row or (), strict=True))
        state = TrialState.RUNNING if trial.pending else TrialState.COMPLETE
        value = None if trial.pending else _value(trial, worst)
        return create_trial(state=state, params=params, distributions=self._distributions, value=value)

    @cached_property
    def _distributions(self) -> dict[str, BaseDistribution]:
        return {p.name: self._distribution(len(p.values)) for p in self.space.parameters}

    @abstractmethod
    def _distribution(self, count: int) -> BaseDistribution:
        """Return Optuna's distribution for a list of `count` values."""

    @abstractmethod
    def _sampler(self, seed: int) -> Any:
        """Create Optuna's sampler."""


class TreeParzenSampler(LibrarySampler):
    """Provide `tpe`: Optuna's tree-structured Parzen estimator over categorical parameters."""

    name = "tpe"

    def _distribution(self, count: int) -> BaseDistribution:
        return CategoricalDistribution(tuple(range(count)))

    def _sampler(self, seed: int) -> Any:
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


class OptunaGaussianProcessSampler(LibrarySampler):
    """Provide `optuna_gp`: Optuna's Gaussian process over positions as integers."""

    name = "optuna_gp"
    patience = 5

    def _distribution(self, count: int) -> BaseDistribution:
        return IntDistribution(0, count - 1)

    def _sampler(self, seed: int) -> Any:
        return optuna.samplers.GPSampler(seed=seed, deterministic_objective=True)


def _value(trial: Trial, worst: float) -> float:
    return float(np.log(trial.time_us or worst))
