"""Implement exact Gaussian-process regression over the configurations of a tuning space.

The covariance is the Matérn-5/2 function of r², the sum of `weight · squared distance` over all features and products
(automatic relevance determination: a weight near zero means that a feature does not matter). Weights and noise
maximise the marginal likelihood times wide log-normal priors (Rasmussen & Williams 2006, section 5.4.1). L-BFGS-B
finds them, starting at the centre of the priors. Targets are expected to have mean 0 and variance 1. The module `gp`
has a table of the notation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from optimizer.search.samplers.features import Features, Floats
from optimizer.search.space import Rows

Real = TypeVar("Real", np.float32, np.float64)

_WEIGHT_STD = 1.5  # log-deviation of the weights' priors; their centres are the features' own
_NOISE, _NOISE_STD, _LEAST_NOISE = 1e-2, 1.0, 1e-4  # variance, as a part of the targets'
_MOST_STEPS = 60
_CHUNK = 20_000  # rows predicted at a time; bounds memory


@dataclass(frozen=True)
class Process:
    """Hold a fitted process.

    `rows` were observed with `targets`, shape (rows,). `theta` holds the logarithms of the weights (one per feature,
    then one per product) and of the noise variance.
    """

    features: Features
    rows: Rows
    targets: Floats
    theta: Floats

    @classmethod
    def fit(cls, features: Features, rows: Rows, targets: Floats) -> Process:
        """Return the process whose hyper-parameters have the highest posterior density given the targets."""
        posterior = _Posterior(features, rows, targets)
        found = minimize(
            posterior.loss,
            posterior.centre,
            jac=True,
            method="L-BFGS-B",
            # The bounds keep exp(theta) within a range where the matrix can still be factorised.
            bounds=posterior.bounds,
            options={"maxiter": _MOST_STEPS},
        )
        return cls(features, rows, targets, found.x)

    def condition_on(self, rows: Rows, targets: Floats, noise: float | None = None) -> Process:
        """Return a process with the same hyper-parameters (except the noise, where given) on other observations."""
        theta = self.theta.copy()
        theta[-1] = theta[-1] if noise is None else np.log(noise)
        return replace(self, rows=rows, targets=targets, theta=theta)

    def fantasise(self, row: NDArray[np.int32]) -> Process:
        """Return the process with a fantasised observation of `row` at its own predicted mean.

        This is the "Kriging believer" of Ginsbourger et al. 2010. It lets several suggestions be made without waiting
        for the measurements.
        """
        mean, _ = self.predict(row[None])
        return self.condition_on(np.vstack([self.rows, row[None]]), np.append(self.targets, mean))

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noiseless function at each row."""
        parts = [self._predicted(rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([std for _, std in parts])

    def _predicted(self, rows: Rows) -> tuple[Floats, Floats]:
        covariance = self._covariance(rows)
        explained = covariance @ self._whitening.T
        # sigma² = 1 - k K⁻¹ kᵀ = 1 - |L⁻¹ kᵀ|², as the prior variance is 1. Rounding may bring it below zero.
        variance = np.maximum(1.0 - np.einsum("ij,ij->i", explained, explained), 1e-6)
        mean = covariance @ self._solved.astype(np.float32)
        return mean.astype(np.float64), np.sqrt(variance).astype(np.float64)

    def _covariance(self, rows: Rows) -> NDArray[np.float32]:
        """Return the covariance between rows and observations, shape (rows, observations), in single precision."""
        return correlation(self.features.weighted_distances(np.exp(self.theta[:-1]), rows, self.rows))

    @cached_property
    def _factor(self) -> Floats:
        matrix = _Covariance(self.features.between(self.rows), self.theta).matrix
        return np.linalg.cholesky(matrix).astype(np.float64)

    @cached_property
    def _solved(self) -> Floats:
        solved: Floats = cho_solve((self._factor, True), self.targets)
        return solved

    @cached_property
    def _whitening(self) -> NDArray[np.float32]:
        # L⁻¹ once, and then only matrix products: cheaper than solving for hundreds of thousands of candidate rows.
        inverse = solve_triangular(self._factor, np.eye(len(self.rows)), lower=True)
        whitening: NDArray[np.float32] = inverse.astype(np.float32)
        return whitening


@dataclass(frozen=True)
class _Posterior:
    """Compute the negative logarithm of marginal likelihood times priors, and its gradient."""

    features: Features
    rows: Rows
    targets: Floats

    @cached_property
    def between(self) -> Floats:
        """Return the squared distances D, shape (weights, rows, rows)."""
        return self.features.between(self.rows)

    @cached_property
    def centre(self) -> Floats:
        """Return the centre of the priors, as logarithms."""
        centre: Floats = np.log(np.append(self.features.expected, _NOISE))
        return centre

    @cached_property
    def prior_std(self) -> Floats:
        return np.append(np.full(self.features.count, _WEIGHT_STD), _NOISE_STD)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(-12.0, 6.0)] * self.features.count + [(float(np.log(_LEAST_NOISE)), 1.0)]

    def loss(self, theta: Floats) -> tuple[float, Floats]:
        """Return value and gradient at `theta`; 1e10 where the matrix is not positive definite."""
        covariance = _Covariance(self.between, theta)
        try:
            factor = np.linalg.cholesky(covariance.matrix)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        # The gradient needs the whole inverse: d loss / d theta_k = tr((K⁻¹ - alpha alphaᵀ) dK/d theta_k) / 2.
        inverse = cho_solve((factor, True), np.eye(len(factor)))
        solved = inverse @ self.targets
        # The priors keep weights near their centre while few observations exist.
        away = (theta - self.centre) / self.prior_std
        # log|K| / 2 + yᵀ K⁻¹ y / 2, without the constant, plus the priors' quadratic penalty.
        value = np.log(np.diag(factor)).sum() + 0.5 * self.targets @ solved + 0.5 * away @ away
        gradient = 0.5 * covariance.gradient(inverse - np.outer(solved, solved)) + away / self.prior_std
        return float(value), gradient


@dataclass(frozen=True)
class _Covariance:
    """Compute the observations' covariance at `theta` from squared distances of shape (weights, rows, rows)."""

    between: Floats
    theta: Floats

    @cached_property
    def matrix(self) -> Floats:
        """Return the covariance with noise, shape (rows, rows)."""
        matrix: Floats = correlation(self._distances) + np.exp(self.theta[-1]) * np.eye(len(self._distances))
        return matrix

    def gradient(self, outer: Floats) -> Floats:
        """Return the sum over entries of `outer` times the derivative of the matrix, for each component of theta."""
        # Contract once over the entries, so that each weight costs one dot product.
        by_distance = (outer * correlation_gradient(self._distances)).ravel()
        by_weight = self.between.reshape(len(self.between), -1) @ by_distance
        # By the chain rule the derivative by a logarithm is the derivative by the value, times the value.
        return np.append(by_weight, np.trace(outer)) * np.exp(self.theta)

    @cached_property
    def _distances(self) -> Floats:
        return np.tensordot(np.exp(self.theta[:-1]), self.between, axes=1)


def correlation(squared: NDArray[Real]) -> NDArray[Real]:
    """Return the Matérn-5/2 correlation of a squared distance, in the precision given."""
    distance = np.sqrt(5.0 * squared)
    value: NDArray[Real] = (1.0 + distance + distance * distance / 3.0) * np.exp(-distance)
    return value


def correlation_gradient(squared: Floats) -> Floats:
    """Return the derivative of `correlation` by the squared distance."""
    distance = np.sqrt(5.0 * squared)
    gradient: Floats = -5.0 / 6.0 * (1.0 + distance) * np.exp(-distance)
    return gradient
