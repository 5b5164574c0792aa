"""Let measurements of the same space in a related task (another target, another size) inform a search.

A process is fitted to the times of each related task, and the mean that it predicts is, scaled, the prior mean of the
search's own process (Swersky, Snoek and Adams 2013 learn the correlation of tasks within one process; fitting each
task alone costs the cube of the larger task only once). The scale is the correlation of ranks between the prediction
and what the search has measured, shrunk towards a moderate one while little is measured. Where the tasks disagree it
goes to zero, and the search goes on as if there was no related task. Several related tasks are averaged, weighted by
the squares of their correlations (compare the ranking-weighted ensembles of Feurer, Letham and Bakshy 2018).

  Notation, beyond that of `gp`:
  p_t       predicted target of related task t at a row
  r_t, r    rank correlation of p_t, and of their average p, with the observed targets
  m         prior mean: r (p - mean(p)) / std(p), with mean and deviation over the observed rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from optimizer.search.samplers.base import FEWEST_RELATED, RelatedTask, Trial
from optimizer.search.samplers.features import Features, Floats
from optimizer.search.samplers.process import Process
from optimizer.search.samplers.targets import Targets
from optimizer.search.space import Rows, Space
from runners.tunables import Parameter

MOST = 200  # measured configurations of a related task to which its process is fitted
_EXPECTED, _EXPECTED_COUNT = 0.7, 4  # correlation before anything is measured, and how many observations it counts
_LEAST_DEVIATION = 0.3  # of predictions over the observed rows; less would exaggerate differences between equals
_LEAST_RESIDUAL = 0.3  # standard deviation of what the related tasks do not explain


@dataclass(frozen=True)
class Transfer:
    """Hold one process for each related task."""

    processes: tuple[Process, ...]

    @classmethod
    def of(cls, space: Space, related: Sequence[RelatedTask]) -> Transfer | None:
        """Return what the related tasks teach, or None where none has enough measurements of this space."""
        known = [_measured(space, task.trials) for task in related]
        processes = [_fitted(space.parameters, _packed(some)) for some in known if len(some) >= FEWEST_RELATED]
        return cls(tuple(processes)) if processes else None

    def predict(self, rows: Rows) -> Floats:
        """Return the target that each related task predicts at each row, shape (rows, tasks)."""
        return np.column_stack([process.predict(rows)[0] for process in self.processes])

    def expected(self, rows: Rows) -> Floats:
        """Return the average prediction while nothing is measured, shape (rows,)."""
        expected: Floats = self.predict(rows).mean(axis=1)
        return expected

    def prior(self, rows: Rows, targets: Floats) -> Prior:
        """Return the prior mean of a search in which `rows` were observed with `targets`."""
        found = self.predict(rows)
        each = np.array([_correlation(one, targets) for one in found.T]) ** 2
        weights = each / each.sum() if each.sum() > 0 else np.full(len(each), 1.0 / len(each))
        predicted = found @ weights
        deviation = max(float(predicted.std()), _LEAST_DEVIATION)
        return Prior(self, weights, float(predicted.mean()), _correlation(predicted, targets), deviation)


@dataclass(frozen=True)
class Prior:
    """Hold a prior mean: the related tasks' predictions with their weights, centre, correlation and
    standard deviation."""

    transfer: Transfer
    weights: Floats
    centre: float
    correlation: float
    deviation: float

    @property
    def residual(self) -> float:
        """Return the standard deviation of what the related tasks do not explain."""
        return max(float(np.sqrt(1.0 - self.correlation**2)), _LEAST_RESIDUAL)

    def mean(self, rows: Rows) -> Floats:
        """Return the prior mean at each row, shape (rows,)."""
        predicted: Floats = self.transfer.predict(rows) @ self.weights
        return self.correlation * (predicted - self.centre) / self.deviation


@dataclass(frozen=True)
class InformedProcess:
    """Hold a process around a prior mean: `process` models what remains, in units of `prior.residual`."""

    prior: Prior
    process: Process

    @classmethod
    def fit(cls, transfer: Transfer, features: Features, rows: Rows, targets: Floats) -> InformedProcess:
        """Return the process around the related tasks' prior mean."""
        prior = transfer.prior(rows, targets)
        return cls(prior, Process.fit(features, rows, (targets - prior.mean(rows)) / prior.residual))

    @property
    def targets(self) -> Floats:
        """Return the observed and the fantasised targets, shape (rows,)."""
        return self.prior.mean(self.process.rows) + self.prior.residual * self.process.targets

    def condition_on(self, rows: Rows, targets: Floats, noise: float | None = None) -> Process:
        """Return a process without the prior mean on other observations, such as failures."""
        return self.process.condition_on(rows, targets, noise)

    def fantasise(self, row: NDArray[np.int32]) -> InformedProcess:
        """Return the process with a fantasised observation of `row`."""
        return replace(self, process=self.process.fantasise(row))

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noiseless function at each row."""
        mean, std = self.process.predict(rows)
        return self.prior.mean(rows) + self.prior.residual * mean, self.prior.residual * std


def _correlation(predicted: Floats, targets: Floats) -> float:
    """Return the rank correlation, shrunk while few are observed, and 0 where it is negative."""
    varies = len(targets) > 2 and np.ptp(predicted) > 0 and np.ptp(targets) > 0
    observed = float(spearmanr(predicted, targets).statistic) if varies else _EXPECTED
    count = len(targets)
    shrunk = (count * observed + _EXPECTED_COUNT * _EXPECTED) / (count + _EXPECTED_COUNT)
    # A negative correlation is rather chance than a task in which the order is reversed.
    return max(0.0, shrunk)


def _measured(space: Space, trials: Sequence[Trial]) -> Mapping[tuple[int, ...], float]:
    """Return the times of a task's configurations that this space lists, by row; of a repeated one the last."""
    rows = ((space.row(trial.config), trial.time_us) for trial in trials if trial.measured)
    return {tuple(row): time for row, time in rows if row is not None and time is not None}


def _packed(times: Mapping[tuple[int, ...], float]) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Return at most MOST rows with their times, hashable: the fastest half, and the rest evenly over the slower."""
    in_order = sorted(times.items(), key=lambda pair: (pair[1], pair[0]))
    if len(in_order) <= MOST:
        return tuple(in_order)
    # The search needs the order of the fast ones. The slow ones keep the fit from predicting that all is fast.
    half = MOST // 2
    slower = np.linspace(half, len(in_order) - 1, MOST - half).round().astype(int)
    return (*in_order[:half], *(in_order[at] for at in slower))


@lru_cache(maxsize=16)
def _fitted(parameters: tuple[Parameter, ...], measured: tuple[tuple[tuple[int, ...], float], ...]) -> Process:
    """Return the process of a related task. It is fitted once in a process, since what was measured stays."""
    rows = np.array([row for row, _ in measured], dtype=np.int32)
    targets = Targets.of(np.array([time for _, time in measured]))
    return Process.fit(Features.of(Space(parameters)), rows, targets.values)
