"""Intervals of shares and of geometric means over kernels, at 95 %."""

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
    """A figure between `low` and `high`."""

    value: float
    low: float
    high: float


def share(hits: int, of: int) -> Interval | None:
    """Per cent with Wilson's score interval (Wilson, JASA 1927), which holds for few and for extreme counts; None of
    nothing."""
    if of <= 0:
        return None
    p, z2 = hits / of, Z * Z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return Interval(100 * p, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


def geometric_mean(values: Sequence[float], seed: int = 0) -> Interval | None:
    """The geometric mean of ratios above zero with its percentile bootstrap interval over the values; the same values
    give the same interval. None of nothing. Only the first `MOST_VALUES` are looked at."""
    if not values:
        return None
    logs = np.log(np.asarray(values[:MOST_VALUES], dtype=float))
    counts = np.random.default_rng(seed).multinomial(len(logs), np.full(len(logs), 1 / len(logs)), RESAMPLES)
    low, high = np.quantile(counts @ logs / len(logs), [0.025, 0.975])
    return Interval(*(float(np.exp(number)) for number in (logs.mean(), low, high)))
