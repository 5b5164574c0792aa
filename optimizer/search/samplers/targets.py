"""Transform measured times into the targets of a regression, and set the threshold of improvement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from optimizer.search.samplers.features import Floats

GAIN = 0.03  # logarithm of time; less is no progress
PATIENCE = 6  # measured configurations without progress before more is asked for
STEP, MOST = 0.02, 0.5  # logarithm of time: how much more for each of them, and at most


@dataclass(frozen=True)
class Targets:
    """Hold regression targets with mean 0 and variance 1, in the order of the times.

    `gradient` is the change of a target per unit of the logarithm of its time, at constant rank.
    """

    values: Floats
    gradient: float

    @classmethod
    def of(cls, times: Floats) -> Targets:
        """Average the standardised log times and the normal scores of the ranks.

        The logarithm makes equal factors equally important. The ranks bound the influence of configurations that are
        a hundred times slower and spread out the fast ones (a Gaussian copula, as in Salinas et al. 2020).
        """
        logs = np.log(times)
        # Each on the same scale, or the wider one would dominate the average.
        both = _standardised(logs) + _standardised(ndtri((rankdata(logs) - 0.5) / len(logs)))
        return cls(_standardised(both), 1.0 / (_std(logs) * _std(both)))


def improvement_margin(times: Sequence[float]) -> float:
    """Return by how much (in log time) the next configuration should be faster than the fastest of `times`.

    `times` are in the order of measurement. The result is zero while the search progresses and grows with every
    measurement without progress. On a plateau of similar configurations, plain expected improvement is spent on tiny
    expected gains within the plateau; a demand for a large gain moves the search elsewhere.
    """
    best, at = np.inf, 0
    for number, log in enumerate(np.log(times)):
        if log < best - GAIN:
            best, at = log, number
    flat = len(times) - 1 - at
    return min(STEP * max(0, flat - PATIENCE), MOST)


def _standardised(values: Floats) -> Floats:
    standardised: Floats = (values - values.mean()) / _std(values)
    return standardised


def _std(values: Floats) -> float:
    return max(float(values.std()), 1e-9)
