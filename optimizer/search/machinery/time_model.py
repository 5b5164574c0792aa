"""Predict the time of a kernel from its machine code and from the kernels of the same problem that were measured.

The model is a Gaussian process over the descriptors of `runners.static_features.cost`, around a line in the estimated
cost: the rules of the hardware first, and what was measured corrects them. Few kernels are measured, so slope and
length scale are chosen by the leave-one-out error, which has a closed form (Rasmussen & Williams 2006, section 5.4.2);
no slope is a choice only where many were measured. Intervals are conformal: the standardised leave-one-out errors say
how wide 80 % must be (Vovk, Gammerman & Shafer 2005; Barber et al. 2021), so they hold where the process's own
assumptions do not.

A prediction ranks and warns. It is never a verdict.

Notation, with n measured kernels, each described by a row x of descriptors and its time t in µs:

| symbol | meaning | in the code |
|---|---|---|
| y = log t − (a + b · cost(x)) | what the line leaves of a time | `targets`; `intercept` a, `slope` b |
| σ² | variance of y around the line | `variance` |
| k(x, x′) | Matérn-3/2 correlation of two rows, of length scale ℓ | `_correlation`, `length` |
| K = σ² (k + noise · I) | covariance of the times, shape (n, n) | `covariance`; K⁻¹ `inverse`, K⁻¹ y `solved` |
| eᵢ = (K⁻¹ y)ᵢ / (K⁻¹)ᵢᵢ | leave-one-out error of kernel i | `left_out` |
| sᵢ = (K⁻¹)ᵢᵢ^(−½) | its standard deviation | `deviations` |
| q | conformal quantile of the abs(eᵢ) / sᵢ: half the width of an interval, in standard deviations | `width` |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from runners.static_features.cost import DESCRIPTORS, descriptors, typical_programs

Floats = NDArray[np.float64]

COVERAGE = 0.8
FEWEST = 6  # measured kernels; with fewer, 80 % of the errors are not a number that means anything
MOST = 300  # the newest measured kernels to which a model is fitted
# Standard deviations from the middle of a normal distribution to the ends of its central 80 %.
_HALF_DEVIATIONS = NormalDist().inv_cdf(0.5 + COVERAGE / 2)
_SLOPES = (0.0, 0.5, 1.0)
# With few kernels the leave-one-out error often prefers no slope at all, which forgets the rules: every kernel is then
# taken for as fast as the others are in the middle.
_FEW, _SLOPES_OF_FEW = 30, (0.25, 0.5, 1.0)
_LENGTHS = (0.5, 1.0, 2.0, 4.0)
_NOISE = 0.05  # of the variance around the line
_LEAST_VARIANCE = 1e-4
_COST = DESCRIPTORS.index("cost")


@dataclass(frozen=True)
class Prediction:
    """Hold a predicted time in µs with its 80 % interval, and how many measured kernels it rests on."""

    time_us: float
    low_us: float
    high_us: float
    measured: int

    def improvement(self, best_us: float) -> float:
        """Return the expected share of the time `best_us` that the kernel saves, from 0 to 1.

        The time is taken as log-normal with the interval as its 80 %, and a slower kernel saves nothing.
        """
        deviation = max(math.log(self.high_us / self.low_us) / (2 * _HALF_DEVIATIONS), 1e-9)
        normal, mean = NormalDist(), math.log(self.time_us / best_us)
        below = normal.cdf(-mean / deviation)
        # E[T; T < 1] of a log-normal T, by the same trick as in the formula of Black and Scholes.
        cost = math.exp(mean + deviation**2 / 2) * normal.cdf(-mean / deviation - deviation)
        return min(1.0, max(0.0, below - cost))


@dataclass(frozen=True)
class TimeModel:
    """Hold a fitted model. `rows` are descriptors of the measured kernels, shape (kernels, descriptors)."""

    rows: Floats
    intercept: float
    slope: float
    length: float
    variance: float
    solved: Floats
    inverse: Floats
    width: float
    # How many programs a kernel is taken to launch of which it is not known.
    programs: float = 1.0

    @classmethod
    def fit(cls, figures: Sequence[Mapping[str, float]], times_us: Sequence[float]) -> TimeModel | None:
        """Fit to measured kernels, oldest first; None where there are fewer than FEWEST with figures."""
        known = [(one, time) for one, time in zip(figures, times_us, strict=True) if one][-MOST:]
        programs = typical_programs([one for one, _ in known])
        pairs = [(descriptors(one, programs), time) for one, time in known]
        if len(pairs) < FEWEST:
            return None
        rows = np.array([list(one.values()) for one, _ in pairs])
        logs = np.log([time for _, time in pairs])
        slopes = _SLOPES_OF_FEW if len(pairs) < _FEW else _SLOPES
        choices = [_Choice.of(rows, logs, *both) for both in itertools.product(slopes, _LENGTHS)]
        return replace(min(choices, key=lambda one: one.error).model, programs=programs)

    def predict(self, figures: Mapping[str, float]) -> Prediction | None:
        """Return the prediction for a kernel that was built; None where its machine code was not read."""
        if not figures:
            return None
        row = np.array(list(descriptors(figures, self.programs).values()))
        near = self.variance * _correlation(self.rows, row[None], self.length)[:, 0]
        mean = self.intercept + self.slope * row[_COST] + float(near @ self.solved)
        deviation = math.sqrt(max(self.variance * (1 + _NOISE) - float(near @ self.inverse @ near), 1e-12))
        half = self.width * deviation
        return Prediction(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(self.rows))


@dataclass(frozen=True)
class _Choice:
    """Hold a model with its mean absolute leave-one-out error, in the logarithm of time."""

    error: float
    model: TimeModel

    @classmethod
    def of(cls, rows: Floats, logs: Floats, slope: float, length: float) -> _Choice:
        around = logs - slope * rows[:, _COST]
        intercept = float(np.median(around))
        targets = around - intercept
        variance = max(float(np.mean(targets**2)), _LEAST_VARIANCE)
        covariance = variance * (_correlation(rows, rows, length) + _NOISE * np.eye(len(rows)))
        inverse: Floats = np.linalg.inv(covariance).astype(np.float64)
        solved = inverse @ targets
        left_out, deviations = solved / np.diag(inverse), 1 / np.sqrt(np.diag(inverse))
        width = _quantile(np.abs(left_out) / deviations)
        model = TimeModel(rows, intercept, slope, length, variance, solved, inverse, width)
        return cls(float(np.abs(left_out).mean()), model)


def _quantile(errors: Floats) -> float:
    """Return the conformal quantile: the smallest error that COVERAGE of n + 1 exchangeable ones do not exceed."""
    rank = min(len(errors), math.ceil(COVERAGE * (len(errors) + 1)))
    return float(np.sort(errors)[rank - 1])


def _correlation(rows: Floats, others: Floats, length: float) -> Floats:
    """Return the Matérn-3/2 correlation, shape (rows, others)."""
    squared = ((rows[:, None, :] - others[None, :, :]) ** 2).sum(axis=2)
    scaled = np.sqrt(3.0 * squared) / length
    correlation: Floats = (1.0 + scaled) * np.exp(-scaled)
    return correlation
