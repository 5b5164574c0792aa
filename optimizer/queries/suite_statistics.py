"""Compute the statistics of suites. Pure: arrays in, figures out; no rows, no files.

The unit of every interval is the problem. Several seeds on one problem are repetitions of one observation, not further
observations: they are averaged first, and problems are resampled. Scores are arrays of shape (problems, seeds): the
speedup of each run, 0 where it has no correct kernel, NaN where it does not count (not run, or not settled).

  fast_p            share of problems that are correct and faster than p times the baseline (Ouyang et al. 2025)
  intervals         Wilson's for shares (JASA 1927), percentile bootstrap over problems for means (Efron 1979)
  comparisons       paired bootstrap over problems of the mean log ratio, p-values adjusted by Holm (1979)

Notation:

| symbol | meaning | in the code |
|---|---|---|
| s[i, j] | speedup of the run on problem i with seed j | `scores` |
| fast_p | share of problems with s > p, averaged over a problem's seeds first | `fast`, `threshold` |
| d[i] | mean over seeds of log s of the first configuration less that of the second | `_difference` |
| p | two-sided bootstrap value of the mean of d being 0, and after Holm | `Difference.p`, `adjusted` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optimizer.queries.intervals import Interval, Z

Array = NDArray[np.float64]

RESAMPLES = 2000
ALPHA = 0.05


@dataclass(frozen=True)
class Difference:
    """Hold the comparison of two configurations over the problems that both have.

    `ratio` is the geometric mean of speedup(first) / speedup(second), where a run without a correct kernel counts as
    1: people then keep the baseline. `p` is the two-sided bootstrap value, `adjusted` the same after Holm's
    correction for all comparisons made together. `problems` is their number; with fewer than two nothing is shown.
    """

    first: str
    second: str
    problems: int
    ratio: Interval | None
    p: float | None
    adjusted: float | None

    @property
    def shows(self) -> str:
        """Return the name of the faster configuration, or an empty string where no difference is shown."""
        if self.ratio is None or self.adjusted is None or self.adjusted >= ALPHA:
            return ""
        return self.first if self.ratio.value > 1 else self.second

    @property
    def words(self) -> str:
        """Return the finding as a sentence."""
        if self.ratio is None:
            return "Too few problems in common to compare."
        if not self.shows:
            return "No difference shown."
        factor = self.ratio if self.shows == self.first else inverse(self.ratio)
        return f"{self.shows} is {factor.value:.2f}× as fast ({factor.low:.2f}–{factor.high:.2f})."


@dataclass(frozen=True)
class Band:
    """Hold best-so-far curves: at each position `at`, the mean over seeds and the range of the seeds."""

    at: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def wilson(hits: float, trials: int) -> Interval | None:
    """Return a share with Wilson's score interval at 95 %; `hits` may be fractional, None without trials.

    With several seeds `hits` is the sum over problems of the share of seeds, and `trials` the number of problems. This
    treats seeds of one problem as perfectly correlated, so the interval is never too narrow.
    """
    if trials <= 0:
        return None
    share, z2 = hits / trials, Z * Z
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    # At the ends the interval reaches the share itself; rounding must not put it beyond.
    return Interval(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def success(scores: Array) -> Interval | None:
    """Return the share of problems with a correct kernel."""
    return fast(scores, 0.0)


def fast(scores: Array, threshold: float) -> Interval | None:
    """Return fast_p: the share of problems that are correct and more than `threshold` times as fast."""
    counted = np.isfinite(scores)
    rows = counted.any(axis=1)
    hits = (np.nan_to_num(scores, nan=0.0) > threshold).sum(axis=1)[rows] / counted.sum(axis=1)[rows]
    return wilson(float(hits.sum()), int(rows.sum()))


def fast_curve(scores: Array, thresholds: Sequence[float]) -> list[Interval]:
    """Return fast_p at each threshold; an empty list without problems."""
    found = [fast(scores, threshold) for threshold in thresholds]
    return [one for one in found if one is not None]


def log_means(scores: Array, missing: float | None) -> Array:
    """Return the mean log speedup of each problem over its seeds, shape (problems,).

    A run without a correct kernel counts as `missing`; None leaves it out, and a problem without any is NaN.
    """
    values = np.log(np.where(scores == 0, np.nan if missing is None else missing, scores))
    counts = np.isfinite(values).sum(axis=1)
    sums = np.nansum(values, axis=1)
    means: Array = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means


def geometric_mean(scores: Array, missing: float | None = None, seed: int = 0) -> Interval | None:
    """Return the geometric mean speedup with its bootstrap interval over problems, or None without a correct one."""
    logs = log_means(scores, missing)
    return _exponential(_bootstrap_mean(logs[np.isfinite(logs)], seed))


def mean_share(shares: Array, seed: int = 0) -> Interval | None:
    """Return the geometric mean of positive shares of the roofline, shape (problems, seeds), as `geometric_mean`."""
    return geometric_mean(shares, None, seed)


def compare(scores: Mapping[str, Array], seed: int = 0) -> list[Difference]:
    """Compare every two configurations over the problems that count for both. All arrays have the same rows."""
    found = [
        _difference(first, second, scores[first], scores[second], seed) for first, second in combinations(scores, 2)
    ]
    adjusted = iter(holm([one.p for one in found if one.p is not None]))
    return [
        one if one.p is None else Difference(one.first, one.second, one.problems, one.ratio, one.p, next(adjusted))
        for one in found
    ]


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's step-down correction, in the given order (Scand. J. Statist. 1979)."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        # A later value is never smaller than an earlier one: the procedure stops at the first that is kept.
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


def median_cost(costs: Sequence[float | None]) -> Interval | None:
    """Return the median cost to reach a goal with its interval from order statistics; None is a run that never did.

    Such a run counts as infinite cost, so a median of infinity says that less than half of them reached it. The
    ranks of the interval's ends are n/2 ± z·√n/2 (Conover 1999, section 3.2).
    """
    if not costs:
        return None
    ordered = sorted(math.inf if cost is None else cost for cost in costs)
    count = len(ordered)
    half = Z * math.sqrt(count) / 2
    low = max(1, math.floor(count / 2 - half))
    high = min(count, math.ceil(1 + count / 2 + half))
    # The lower of two middle values: their mean would be infinite where only one of them is.
    return Interval(ordered[(count - 1) // 2], ordered[low - 1], ordered[high - 1])


def band(curves: Sequence[Sequence[Sequence[tuple[float, float]]]], at: Sequence[float]) -> Band:
    """Return the band of best-so-far curves.

    `curves[seed][problem]` is a list of (position, speedup) at which the best improved. For each seed the geometric
    mean over problems is taken, a problem without a kernel so far counting as 1; the band is the range over seeds and
    its middle their geometric mean.
    """
    rows = np.array([_mean_logs(problems, at) for problems in curves], dtype=float)
    if rows.size == 0:
        return Band((), (), (), ())
    middle, low, high = np.exp(rows.mean(axis=0)), np.exp(rows.min(axis=0)), np.exp(rows.max(axis=0))
    return Band(tuple(at), tuple(map(float, middle)), tuple(map(float, low)), tuple(map(float, high)))


def inverse(interval: Interval) -> Interval:
    """Return the interval of the reciprocal."""
    return Interval(1 / interval.value, 1 / interval.high, 1 / interval.low)


def _difference(first: str, second: str, ours: Array, theirs: Array, seed: int) -> Difference:
    pairs = log_means(ours, 1.0) - log_means(theirs, 1.0)
    pairs = pairs[np.isfinite(pairs)]
    if len(pairs) < 2:
        return Difference(first, second, len(pairs), None, None, None)
    means = _resampled_means(pairs, seed)
    # Shift the resampled means to the null hypothesis and count how often they are as far from zero as the observed
    # one (Efron and Tibshirani 1993, section 16.2). One is added to both, so that p is never zero.
    far = np.abs(means - pairs.mean()) >= abs(pairs.mean()) - 1e-12
    p = (1 + int(far.sum())) / (1 + RESAMPLES)
    # A bootstrap of few values promises too much. Flipping the signs of n pairs gives 2^n equally likely outcomes, so
    # no exact test of them has a smaller value than this; four problems never show a difference.
    p = max(p, 2.0 ** (1 - len(pairs)))
    return Difference(first, second, len(pairs), _exponential(_interval(pairs, means)), p, p)


def _bootstrap_mean(values: Array, seed: int) -> Interval | None:
    return _interval(values, _resampled_means(values, seed)) if len(values) else None


def _resampled_means(values: Array, seed: int) -> Array:
    # In the draws' own precision, or the whole matrix would be copied for each product. The error, about 1e-7 of a
    # value, is far below that of drawing. Not by `@`: its threads wait for each other on a busy machine, which took
    # ten times as long as the product.
    sums = np.einsum("rn,n->r", _draws(len(values), seed), values.astype(np.float32))
    means: Array = sums.astype(float) / len(values)
    return means


@lru_cache(maxsize=8)
def _draws(count: int, seed: int) -> NDArray[np.float32]:
    """Return how often each of `count` values is drawn in each resample, shape (RESAMPLES, count).

    The numbers are multinomial, which is much cheaper than drawing indices, and the same for all means over as many
    problems: a page draws them once.
    """
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    return drawn.astype(np.float32)


def _interval(values: Array, means: Array) -> Interval:
    low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
    return Interval(float(values.mean()), float(low), float(high))


def _exponential(interval: Interval | None) -> Interval | None:
    return (
        None
        if interval is None
        else Interval(*(math.exp(x) for x in (interval.value, interval.low, interval.high)))
    )


def _mean_logs(problems: Sequence[Sequence[tuple[float, float]]], at: Sequence[float]) -> Array:
    """Return the mean over problems of the log of the best so far at each position of `at`, which ascends."""
    gains = [
        (where, math.log(speedup / before))
        for points in problems
        for (where, speedup), before in zip(points, (1.0, *(best for _, best in points)), strict=False)
    ]
    # Every improvement counts from the first position that is not before it.
    first = np.searchsorted(at, [where for where, _ in gains])
    added = np.bincount(first, [gain for _, gain in gains], len(at) + 1)
    means: Array = np.cumsum(added[: len(at)]) / max(1, len(problems))
    return means
