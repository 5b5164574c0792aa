"""Compute 95 % intervals of shares and of geometric means over kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z = 1.959964
RESAMPLES = 1000
MOST_VALUES = 5_000


@dataclass(frozen=True)
class Interval:
    """Hold a value and its interval."""

    value: float
    low: float
    high: float


def share(hits: int, of: int) -> Interval | None:
    """Return the share in per cent with Wilson's score interval, or None for no trials.

    The interval holds for small and extreme counts (Wilson, JASA 1927).
    """
    if of <= 0:
        return None
    p, z2 = hits / of, Z * Z
    # Wilson's interval is centred between the observed share and one half, unlike the normal approximation, which
    # leaves the range 0 to 1 for extreme shares.
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return Interval(100 * p, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


def geometric_mean(values: Sequence[float], seed: int = 0) -> Interval | None:
    """Return the geometric mean of positive ratios with its percentile bootstrap interval, or None for no values.

    Equal values give equal intervals. Only the first `MOST_VALUES` are used.
    """
    if not values:
        return None
    logs = np.log(np.asarray(values[:MOST_VALUES], dtype=float))
    # Resampling n values with replacement equals drawing how often each occurs, which is one multinomial draw.
    counts = np.random.default_rng(seed).multinomial(len(logs), np.full(len(logs), 1 / len(logs)), RESAMPLES)
    low, high = np.quantile(counts @ logs / len(logs), [0.025, 0.975])
    return Interval(*(float(np.exp(number)) for number in (logs.mean(), low, high)))
