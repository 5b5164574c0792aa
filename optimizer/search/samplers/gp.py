"""Implement Bayesian optimisation for small budgets with a Gaussian process over every valid configuration.

As in Willemsen, van Nieuwpoort and van Werkhoven 2021 ("Bayesian Optimization for auto-tuning GPU kernels"), the
model covers valid configurations only, and the acquisition function is evaluated at all of them instead of being
optimised over a box. Features, covariance and targets are our own (see `features`, `process`, `targets`).

The acquisition value is the logarithm of expected improvement (Jones, Schonlau and Welch 1998), which stays
comparable where the improvement is tiny (Ament et al. 2023), plus the logarithm of the probability that the
configuration works (Gelbart, Snoek and Adams 2014). Every third suggestion is restricted to the neighbours of the
fastest configuration: a local search that the same model guides (compare Eriksson et al. 2019). While nothing gets
faster, improvement is counted from a threshold further and further below the fastest (`targets.improvement_margin`).

Where configurations were compiled ahead, the process sees descriptors of their machine code beside the parameters
(Ashouri et al. 2018 survey such features for compilers), those of the others are guessed (see `guesses`), and every
second start is one that costs little by the rules of the hardware (`runners.static_features.cost`).

Where the space was measured in a related task, such as on another target, the process of speed is built around what
that task predicts (see `transfer`), and the starts are fewer: the fastest there, one drawn evenly, one of the fastest.

  Notation, here and in `process`:
  n, d      number of observations; number of weights (features, then products)
  X         observed rows, shape (n, parameters): positions in the value lists
  y         targets of the observations, shape (n,): mean 0, variance 1, smaller is faster
  D_k       squared distances of feature k among rows, shape (n, n)
  theta     logarithms of the d weights w and of the noise variance s², shape (d + 1,)
  K         covariance of the observations: Matérn-5/2(sum of w_k D_k) + s² I
  L         Cholesky factor of K, lower triangular
  alpha     K⁻¹ y
  mu, sigma predicted mean and standard deviation at a candidate row
  m         threshold of improvement: min(y) - margin
  z         (m - mu) / sigma
  EI        expected improvement: sigma (z Phi(z) + phi(z))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr
from threadpoolctl import ThreadpoolController

from optimizer.search.samplers.base import Sampler, Trial
from optimizer.search.samplers.candidates import candidate_rows, draw_balanced, rows_of
from optimizer.search.samplers.features import Features, Floats
from optimizer.search.samplers.guesses import with_guesses
from optimizer.search.samplers.process import Process
from optimizer.search.samplers.static import StaticTable
from optimizer.search.samplers.targets import Targets, improvement_margin
from optimizer.search.samplers.transfer import InformedProcess, Transfer
from optimizer.search.space import Config, Rows, Space, rows_among

STARTS = 8  # configurations before the first model, so chosen that every value is seen
INFORMED_STARTS = 3  # the same with related tasks: the first is the fastest there
_INFORMED = 200  # one configuration in so many is a start by its time in related tasks
_FEWEST = 3  # measured configurations that a model needs
_HILL_CLIMB_EVERY = 3
_NEAR = 3  # best configurations whose neighbours are candidates in spaces too large to list
_MOST_SCORED = 25_000  # configurations whose acquisition is computed for one question
_MOST_OBSERVED = 300  # trials that a model is fitted to
_FAILURE_NOISE = 0.1
_CHEAP = 20  # one configuration in so many is a start by its estimated cost
_TIE = 1e-9


class GaussianProcessSampler(Sampler):
    """Provide the sampler `gp` that the module describes."""

    name = "gp"
    uses_related = True

    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        # Matrices of a few hundred rows gain nothing by threads, and lose much where the cores are busy timing.
        with _libraries().limit(limits=1, user_api="blas"):
            return self._suggest_rows(history, n, rng)

    def _suggest_rows(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        measured = [trial for trial in history if trial.measured]
        near = rows_of(self.space, sorted(measured, key=_time)[:_NEAR])
        # Pending trials are included: no configuration is suggested twice.
        tried = rows_of(self.space, history)
        rows = candidate_rows(self.space, tried, near, _MOST_SCORED, rng)
        static = self._static.covering(np.vstack([rows, tried])) if self._static else None
        # Failures do not help to fit a model of times, so starting goes on until enough were measured.
        begun = sum(not trial.ruled_out for trial in history)
        wanted = INFORMED_STARTS if self._transfer else STARTS
        starts = n if len(measured) < _FEWEST else min(n, max(0, wanted - begun))
        promising = self._promising(rows, static) if starts else rows[:0]
        chosen = self._starts(rows, tried, starts, promising, rng)
        if n > starts:
            pending = np.vstack([rows_of(self.space, [trial for trial in history if trial.pending]), chosen])
            search = _Search.over(Features.of(self.space, static), self.space, history, self._transfer)
            numbers = range(len(history) + starts, len(history) + n)
            chosen = np.vstack([chosen, search.choose(rows, pending, numbers, rng)])
        return [self.space.config(row) for row in chosen]

    def _starts(self, rows: Rows, tried: Rows, count: int, promising: Rows, rng: np.random.Generator) -> Rows:
        """Return `count` rows that cover the values evenly, every second of those that are promising.

        Related tasks and the rules of the hardware may be wrong about a kernel, so the other half does not depend on
        them. Where there are related tasks, what they expect to be the fastest comes first.
        """
        chosen = rows[:0]
        for number in range(len(tried), len(tried) + count):
            seen = np.vstack([tried, chosen])
            if self._transfer and not len(chosen) and _expects_better(self._transfer, promising, seen):
                chosen = promising[:1]
                continue
            pool = promising if number % 2 == 0 and not rows_among(promising, chosen).all() else rows
            chosen = np.vstack([chosen, draw_balanced(pool[~rows_among(pool, chosen)], seen, 1, rng)])
        return chosen

    def _promising(self, rows: Rows, static: StaticTable | None) -> Rows:
        """Return the rows from which every second start is drawn: the fastest in related tasks, else the cheapest.

        There are none where nothing was compiled either.
        """
        if self._transfer is not None:
            return rows[np.argsort(self._transfer.expected(rows), kind="stable")[: -(-len(rows) // _INFORMED)]]
        if static is None:
            return rows[:0]
        return rows[np.argsort(static.cost(rows), kind="stable")[: -(-len(rows) // _CHEAP)]]

    @cached_property
    def _transfer(self) -> Transfer | None:
        return Transfer.of(self.space, self.related)

    @cached_property
    def _static(self) -> StaticTable | None:
        table = StaticTable.of(self.space, self.features)
        return with_guesses(table, self.space) if table else None


@dataclass(frozen=True)
class _Search:
    """Hold what the history teaches about the space.

    `speed` models how fast a configuration may be; `works` models whether it works, and is None while nothing has
    failed. `best` is the fastest row. `margin` is the distance, in units of the targets, below the fastest at which
    improvement begins.
    """

    speed: Process | InformedProcess
    works: Process | None
    best: NDArray[np.int32]
    margin: float

    @classmethod
    def over(
        cls, features: Features, space: Space, history: Sequence[Trial], transfer: Transfer | None = None
    ) -> _Search:
        """Fit both models to the history. The model of failures reuses the length scales of the model of speed."""
        in_order = [trial for trial in history if trial.measured]
        measured = _training_trials(in_order)
        times, rows = np.array([_time(trial) for trial in measured]), rows_of(space, measured)
        targets = Targets.of(times)
        margin = targets.gradient * improvement_margin([_time(trial) for trial in in_order])
        speed, best = _fitted(features, rows, targets.values, transfer), rows[times.argmin()]
        ended = [trial for trial in history if not trial.pending][-_MOST_OBSERVED:]
        if not any(trial.failed for trial in ended):
            return cls(speed, None, best, margin)
        # A regression on ±1 labels with its own noise is a cheap stand-in for a classifier: sign and certainty are
        # enough here.
        outcomes = np.array([1.0 if trial.measured else -1.0 for trial in ended])
        return cls(speed, speed.condition_on(rows_of(space, ended), outcomes, noise=_FAILURE_NOISE), best, margin)

    def choose(self, rows: Rows, pending: Rows, numbers: range, rng: np.random.Generator) -> Rows:
        """Return the row with the largest acquisition value for each of the suggestions `numbers`.

        Each is chosen as if the pending rows and the earlier suggestions were measured. Fewer are returned where no
        row is left.
        """
        speed, chosen = self.speed, np.zeros((0, rows.shape[1]), dtype=np.int32)
        for row in pending:
            speed = speed.fantasise(row)
        free = ~rows_among(rows, pending)
        for number in numbers:
            if not free.any():
                break
            acquisition = np.where(
                self._allowed_rows(rows, free, number), self._acquisition_values(speed, rows), -np.inf
            )
            # Draw among ties: taking the first would favour the values that are listed first.
            best = int(rng.choice(np.flatnonzero(acquisition >= acquisition.max() - _TIE)))
            free[best] = False
            chosen = np.vstack([chosen, rows[best][None]])
            speed = speed.fantasise(rows[best])
        return chosen

    def _allowed_rows(self, rows: Rows, free: NDArray[np.bool_], number: int) -> NDArray[np.bool_]:
        """Return the free rows, restricted to neighbours of the best at every `_HILL_CLIMB_EVERY`-th suggestion.

        Neighbours differ in one parameter. A step of hill climbing does not depend on the model being right.
        """
        near = free & ((rows != self.best).sum(axis=1) == 1)
        return near if number % _HILL_CLIMB_EVERY == 0 and near.any() else free

    def _acquisition_values(self, speed: Process | InformedProcess, rows: Rows) -> Floats:
        """Return the acquisition values, shape (rows,): log expected improvement plus log probability of working."""
        acquisition = log_improvement(*speed.predict(rows), float(speed.targets.min()) - self.margin)
        if self.works is None:
            return acquisition
        mean, std = self.works.predict(rows)
        chance: Floats = log_ndtr(mean / std)
        return acquisition + chance


def _expects_better(transfer: Transfer, promising: Rows, seen: Rows) -> bool:
    """Return whether the first of the promising rows is expected to be faster than all that were seen."""
    if not len(promising) or not len(seen):
        return len(promising) > 0
    return bool(transfer.expected(promising[:1])[0] < transfer.expected(seen).min())


def _fitted(
    features: Features, rows: Rows, targets: Floats, transfer: Transfer | None
) -> Process | InformedProcess:
    if transfer is None:
        return Process.fit(features, rows, targets)
    return InformedProcess.fit(transfer, features, rows, targets)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def log_improvement(mean: Floats, std: Floats, best: float) -> Floats:
    """Return the logarithm of the expected improvement below `best`, in the shape of `mean`.

    More than five standard deviations away it uses the asymptotic expansion, which does not underflow.
    """
    gap = (best - mean) / std
    # Each branch of `np.where` is evaluated for all rows; clipping keeps the unused ones finite.
    near = np.maximum(gap, -5.0)
    density = np.exp(-0.5 * near * near) / np.sqrt(2.0 * np.pi)
    far = np.minimum(gap, -5.0)
    tail = -0.5 * far * far - 0.5 * np.log(2.0 * np.pi) - 2.0 * np.log(-far)
    value: Floats = np.where(gap > -5.0, np.log(near * ndtr(near) + density), tail) + np.log(std)
    return value


def _training_trials(trials: list[Trial]) -> list[Trial]:
    """Return the trials to which the model is fitted: all, or the fastest and the newest, half and half.

    The cost of a fit grows with the cube of their number.
    """
    if len(trials) <= _MOST_OBSERVED:
        return trials
    # The fastest show where it is good, the newest where the search is now.
    half = _MOST_OBSERVED // 2
    fastest = {id(trial) for trial in sorted(trials, key=_time)[:half]}
    newest = [trial for trial in trials if id(trial) not in fastest][-half:]
    return [trial for trial in trials if id(trial) in fastest] + newest


def _time(trial: Trial) -> float:
    return trial.time_us or np.inf
