"""What a model of times is fitted to, and how much faster than the fastest is worth hoping for."""

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
    """`values` have mean 0 and variance 1, in the order of the times; `slope` is how far one moves with the logarithm
    of its time while its rank stays."""

    values: Floats
    slope: float

    @classmethod
    def of(cls, times: Floats) -> Targets:
        """The mean of standardised log times and of the ranks' normal scores. The logarithm makes factors alike; the
        ranks tame configurations a hundred times slower and spread the fast ones (a Gaussian copula, as in Salinas et
        al. 2020)."""
        logs = np.log(times)
        both = _standardised(logs) + _standardised(ndtri((rankdata(logs) - 0.5) / len(logs)))
        return cls(_standardised(both), 1.0 / (_spread(logs) * _spread(both)))


def hoped_for(times: Sequence[float]) -> float:
    """By how much (logarithm of time) the next configuration should be faster than the fastest of `times`, which are in
    the order they were measured. Nothing while the search gets on; the longer it doesn't, the more. On a plateau of
    configurations that are alike, expected improvement is spent on the little that the model thinks one of them may be
    better; what is asked to be much better lies elsewhere."""
    best, at = np.inf, 0
    for number, log in enumerate(np.log(times)):
        if log < best - GAIN:
            best, at = log, number
    flat = len(times) - 1 - at
    return min(STEP * max(0, flat - PATIENCE), MOST)


def _standardised(values: Floats) -> Floats:
    standardised: Floats = (values - values.mean()) / _spread(values)
    return standardised


def _spread(values: Floats) -> float:
    return max(float(values.std()), 1e-9)
