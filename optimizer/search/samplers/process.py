"""A Gaussian process over the configurations of a tuning space.

Kernel: (1 − share) · M(r²) + share · mean over parameters of M(r²_p), where M is the Matérn-5/2 function, r² sums
`weight · squared distance` over all features (automatic relevance determination), products included, and r²_p over
those of one parameter. The first part learns interactions; the second carries what is learnt about one parameter to
every value of the others (Duvenaud et al. 2011, "Additive Gaussian Processes"), which is what few observations need.

Weights, noise and share are the maximum of marginal likelihood times wide log-normal priors (Rasmussen & Williams
2006, §5.4.1), found by L-BFGS-B from the priors' centre. Targets are expected with mean 0 and variance 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_solve, solve_triangular
from scipy.optimize import minimize

from optimizer.search.samplers.features import Features, Floats
from optimizer.search.space import Rows

Real = TypeVar("Real", np.float32, np.float64)

_WEIGHT, _WEIGHT_SPREAD = 0.3, 1.5  # centre (of a parameter's weights together) and log-deviation of the priors
_PRODUCTS_WEIGHT = 0.5  # centre, of all products together: one tells less than its factors, until the data say more
_NOISE, _NOISE_SPREAD, _LEAST_NOISE = 1e-2, 1.0, 1e-4  # variance, as a part of the targets'
_SHARE_SPREAD = 1.5  # of the share's log-odds, centred at even
_MOST_STEPS = 60
_CHUNK = 20_000  # rows predicted at a time; bounds memory


@dataclass(frozen=True)
class Process:
    """A fitted process: `rows` were observed with `targets` (shape (rows,)). `theta` holds the logarithms of the
    weights (one a feature, then one a product) and of the noise, and the share's log-odds."""

    features: Features
    rows: Rows
    targets: Floats
    theta: Floats

    @classmethod
    def fit(cls, features: Features, rows: Rows, targets: Floats) -> Process:
        """The process whose hyper-parameters explain the targets best."""
        posterior = _Posterior(features, rows, targets)
        found = minimize(
            posterior.loss,
            posterior.centre,
            jac=True,
            method="L-BFGS-B",
            bounds=posterior.bounds,
            options={"maxiter": _MOST_STEPS},
        )
        return cls(features, rows, targets, found.x)

    def observing(self, rows: Rows, targets: Floats, noise: float | None = None) -> Process:
        """The same hyper-parameters (but for the noise, where given) on other observations."""
        theta = self.theta.copy()
        theta[-2] = theta[-2] if noise is None else np.log(noise)
        return replace(self, rows=rows, targets=targets, theta=theta)

    def believing(self, row: NDArray[np.int32]) -> Process:
        """As if `row` had been observed at its own mean (the "Kriging believer" of Ginsbourger et al. 2010), for
        suggestions that must not wait for it."""
        mean, _ = self.predict(row[None])
        return self.observing(np.vstack([self.rows, row[None]]), np.append(self.targets, mean))

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the noiseless function at each row."""
        parts = [self._predicted(rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([spread for _, spread in parts])

    def _predicted(self, rows: Rows) -> tuple[Floats, Floats]:
        covariance = self._covariance(rows)
        explained = covariance @ self._whitening.T
        variance = np.maximum(1.0 - np.einsum("ij,ij->i", explained, explained), 1e-6)
        return (covariance @ self._solved.astype(np.float32)).astype(np.float64), np.sqrt(variance).astype(
            np.float64
        )

    def _covariance(self, rows: Rows) -> NDArray[np.float32]:
        """Between rows and what was observed; single precision, as there may be hundreds of thousands of rows."""
        share, tables = _logistic(self.theta[-1]), self.features.tables(np.exp(self.theta[:-2]))
        single = [share / len(tables) * correlation(table) for table in tables]
        apart = self.features.total(tables, rows, self.rows)
        apart += self.features.apart(np.exp(self.theta[:-2]), rows, self.rows)
        joint: NDArray[np.float32] = correlation(apart)
        joint *= np.float32(1.0 - share)
        joint += self.features.total(single, rows, self.rows)
        return joint

    @cached_property
    def _factor(self) -> Floats:
        observed = _Observed.of(self.features, self.rows)
        return np.linalg.cholesky(_Covariance(observed, self.theta).matrix).astype(np.float64)

    @cached_property
    def _solved(self) -> Floats:
        solved: Floats = cho_solve((self._factor, True), self.targets)
        return solved

    @cached_property
    def _whitening(self) -> NDArray[np.float32]:
        inverse = solve_triangular(self._factor, np.eye(len(self.rows)), lower=True)
        whitening: NDArray[np.float32] = inverse.astype(np.float32)
        return whitening


@dataclass(frozen=True)
class _Posterior:
    """Minus the logarithm of marginal likelihood times priors, and its gradient."""

    features: Features
    rows: Rows
    targets: Floats

    @cached_property
    def observed(self) -> _Observed:
        return _Observed.of(self.features, self.rows)

    @cached_property
    def centre(self) -> Floats:
        """Where the priors have their middle: a parameter's features share its weight evenly."""
        owners = self.features.owners
        weights = _WEIGHT / np.bincount(owners)[owners]
        count = len(self.features.products)  # none where one parameter is all there is
        products = np.full(count, _PRODUCTS_WEIGHT / max(count, 1))
        return np.concatenate([np.log(weights), np.log(products), [np.log(_NOISE), 0.0]])

    @cached_property
    def spread(self) -> Floats:
        return np.append(np.full(self.features.count, _WEIGHT_SPREAD), [_NOISE_SPREAD, _SHARE_SPREAD])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(-12.0, 6.0)] * self.features.count + [(float(np.log(_LEAST_NOISE)), 1.0), (-4.0, 4.0)]

    def loss(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient at `theta`; infinite (1e10) where the matrix is not positive definite."""
        covariance = _Covariance(self.observed, theta)
        try:
            factor = np.linalg.cholesky(covariance.matrix)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((factor, True), np.eye(len(factor)))
        solved = inverse @ self.targets
        away = (theta - self.centre) / self.spread
        value = np.log(np.diag(factor)).sum() + 0.5 * self.targets @ solved + 0.5 * away @ away
        slope = 0.5 * covariance.slope(inverse - np.outer(solved, solved)) + away / self.spread
        return float(value), slope


@dataclass(frozen=True)
class _Observed:
    """What a fit needs of its rows, at any theta. `between`: squared distances, shape (weights, rows, rows)."""

    features: Features
    between: Floats
    indicators: Floats

    @classmethod
    def of(cls, features: Features, rows: Rows) -> _Observed:
        return cls(features, features.between(rows), features.indicators(rows))


@dataclass(frozen=True)
class _Covariance:
    """The observations' covariance at `theta`. The additive part is linear in the indicators of values, so it and its
    slopes are worked out between values, of which there are fewer than pairs of rows."""

    observed: _Observed
    theta: Floats

    @cached_property
    def matrix(self) -> Floats:
        """Shape (rows, rows), noise included."""
        noise = np.exp(self.theta[-2]) * np.eye(len(self._joint))
        matrix: Floats = (1.0 - self._share) * correlation(self._joint) + self._share * self._additive + noise
        return matrix

    def slope(self, outer: Floats) -> Floats:
        """The sum over entries of `outer` times the matrix's derivative, for each component of theta."""
        between, share = self.observed.between, self._share
        by_joint = between.reshape(len(between), -1) @ (outer * correlation_slope(self._joint)).ravel()
        by_weight = ((1.0 - share) * by_joint + share * self._additive_slope(outer)) * np.exp(self.theta[:-2])
        by_noise = np.trace(outer) * np.exp(self.theta[-2])
        by_share = (outer * (self._additive - correlation(self._joint))).sum() * share * (1.0 - share)
        return np.append(by_weight, [by_noise, by_share])

    def _additive_slope(self, outer: Floats) -> Floats:
        """For each weight, the sum of `outer` times the additive part's derivative by it; products have no part in
        that."""
        features, indicators = self.observed.features, self.observed.indicators
        between_values = indicators.T @ outer @ indicators
        blocks = [between_values[block, block] for block in features.blocks]
        slopes = [block * correlation_slope(table) for block, table in zip(blocks, self._tables, strict=True)]
        sums = [
            (slopes[owner] * one.squared).sum() for owner, one in zip(features.owners, features.each, strict=True)
        ]
        return np.append(np.array(sums) / len(slopes), np.zeros(len(features.products)))

    @cached_property
    def _share(self) -> float:
        return _logistic(self.theta[-1])

    @cached_property
    def _joint(self) -> Floats:
        return np.tensordot(np.exp(self.theta[:-2]), self.observed.between, axes=1)

    @cached_property
    def _tables(self) -> list[Floats]:
        return self.observed.features.tables(np.exp(self.theta[:-2]))

    @cached_property
    def _additive(self) -> Floats:
        indicators = self.observed.indicators
        alike = block_diag(*(correlation(table) / len(self._tables) for table in self._tables))
        additive: Floats = indicators @ alike @ indicators.T
        return additive


def correlation(squared: NDArray[Real]) -> NDArray[Real]:
    """Matérn-5/2 of a squared distance, in the precision given."""
    distance = np.sqrt(5.0 * squared)
    value: NDArray[Real] = (1.0 + distance + distance * distance / 3.0) * np.exp(-distance)
    return value


def correlation_slope(squared: Floats) -> Floats:
    """The derivative of `correlation` by the squared distance."""
    distance = np.sqrt(5.0 * squared)
    slope: Floats = -5.0 / 6.0 * (1.0 + distance) * np.exp(-distance)
    return slope


def _logistic(odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(-odds)))
