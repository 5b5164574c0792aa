"""Compute a speedup, its interval and a verdict from paired timings. Pure functions, standard library only.

A *unit* is one palindrome of blocks (A B B A or B A A B). Its log-ratio is the mean log of the opponent's block
medians minus that of the candidate's, so that a linear drift of the machine cancels. Units are grouped by session
(one fresh process per side), because layout and placement differ between processes: the bootstrap resamples sessions,
then units within them (hierarchical bootstrap; Davison & Hinkley 1997, §3.8; for kernels and JITs: Kalibera & Jones,
"Rigorous benchmarking in reasonable time", ISMM 2013). A session's processes make the calls of all cases, so that a
session is drawn with all of them: an odd process shows in every case, so that more cases do not average it out. Of a
few sessions the bootstrap shows too little scatter, so that its bounds are moved outwards (Hesterberg, "What
teachers should know about the bootstrap", 2015, expanded percentiles).

Notation:

| symbol | meaning | in the code |
|---|---|---|
| A, B | blocks of K or 2K calls of the candidate and of an opponent | `candidate_blocks`, `opponent_blocks` |
| r = mean ln B − mean ln A | log-ratio of one unit; above 0 the candidate is faster | `unit_log_ratio` |
| r_si | unit i of session s | `Units` |
| c = median of all r_si | log-speedup of one case | `_centre` |
| exp(mean of c over cases) | speedup: the geometric mean over the cases | `speedup` |
| B | variance of a session's mean over all cases | `_variances` |
| W | the part of B that the scatter of units within sessions explains | `_variances` |
| e = t / z · √(n / (n − 1)) | factor by which bounds are moved outwards | `expansion` |
| φ | noise floor, a ratio ≥ 1 | `floor` |
| o − i | the referee's time minus the inside time of a request, µs | `unaccounted_us` |
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from runners.job import Verdict

# Log-ratios by session.
Units = Sequence[Sequence[float]]

# Enough for the bounds of a 95 % percentile interval (Davison & Hinkley 1997).
RESAMPLES = 1000
LEVEL = 0.95
# Sessions differ from each other if their means scatter so much more than their units explain (B / W). Simulated with
# three to five sessions of one to eight units, intervals then hold the truth in 90 to 98 % of all trials, without it in
# 75 to 98 %. With three or five cases and processes that differ, they hold it in 93 to 100 %; while each case drew
# sessions of its own, in 65 to 91 %.
SESSIONS_DIFFER = 2.0
# The exponential of more is no float.
LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Interval:
    """Hold a ratio and its interval; above 1 the candidate is faster."""

    median: float
    low: float
    high: float


def usable(samples: Sequence[float]) -> bool:
    """Return whether times are possible: finite and above zero."""
    return bool(samples) and all(math.isfinite(sample) and sample > 0 for sample in samples)


def unit_log_ratio(opponent_blocks: Sequence[float], candidate_blocks: Sequence[float]) -> float:
    """Return the log of opponent over candidate time of one unit, from the blocks' medians."""
    return fmean(map(math.log, opponent_blocks)) - fmean(map(math.log, candidate_blocks))


def within_deviation(sessions: Units) -> float:
    """Return the standard deviation of the units within their sessions, each about its own session's mean (pooled).

    It is infinite if no session has two units.
    """
    freedom = sum(len(session) - 1 for session in sessions)
    if freedom < 1:
        return math.inf
    squares = sum((value - fmean(session)) ** 2 for session in sessions for value in session)
    return math.sqrt(squares / freedom)


def speedup(cases: Sequence[Units], rng: random.Random, resamples: int = RESAMPLES) -> Interval:
    """Return the geometric mean over the cases of the median unit ratio, with its interval at LEVEL.

    All cases are of the same sessions, in the same order.
    """
    sessions = _by_session(cases)
    draws = sorted(_resampled(sessions, rng) for _ in range(resamples))
    found = _interval(fmean(_centre(units) for units in cases), draws, expansion(cases))
    return Interval(math.exp(found.median), math.exp(found.low), math.exp(min(found.high, LARGEST_LOG)))


def median_interval(sessions: Units, rng: random.Random, resamples: int = RESAMPLES) -> Interval:
    """Return the median time and its interval, by the same bootstrap. Values are times in any unit, not logs."""
    alone = _by_session([sessions])
    draws = sorted(_resampled(alone, rng) for _ in range(resamples))
    found = _interval(_centre(sessions), draws, expansion([sessions]))
    return Interval(found.median, max(found.low, 0.0), found.high)


def _interval(centre: float, draws: Sequence[float], factor: float) -> Interval:
    """Return the percentiles of sorted draws, their distances from the centre multiplied by the factor."""
    low, high = quantile(draws, (1 - LEVEL) / 2), quantile(draws, (1 + LEVEL) / 2)
    # With few units the resampled medians may all lie on one side of the observed one, which the interval must contain.
    return Interval(centre, centre + factor * min(0.0, low - centre), centre + factor * max(0.0, high - centre))


def expansion(cases: Sequence[Units]) -> float:
    """Return by how much the bounds of a percentile interval are too close to the centre.

    The factor is that of an interval with Student's t instead of the normal distribution, and of a standard deviation
    with n - 1 instead of n. Sessions are counted where they differ from each other, else units.
    """
    between, within, between_freedom, within_freedom = _variances(cases)
    if between_freedom and (not within_freedom or between > SESSIONS_DIFFER * within):
        freedom, size = float(between_freedom), 1.0 + between_freedom
    else:
        freedom = float(between_freedom + within_freedom)
        size = 1 + freedom / len(cases)
    if not freedom:
        return 1.0  # a single unit has no scatter to multiply
    return student_t(freedom) / student_t(math.inf) * math.sqrt(size / (size - 1))


def _variances(cases: Sequence[Units]) -> tuple[float, float, int, int]:
    """Return the variance of a session's mean over all cases, the part of it that units explain, and the degrees of
    freedom of both."""
    means = [fmean(map(fmean, session)) for session in _by_session(cases)]
    centre = fmean(means)
    between_freedom = len(means) - 1
    between = sum((mean - centre) ** 2 for mean in means) / max(1, between_freedom)
    groups = [session for sessions in cases for session in sessions]
    within_freedom = sum(len(group) - 1 for group in groups)
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    each = fmean(1 / len(group) for group in groups) / len(cases)
    return between, squares / max(1, within_freedom) * each, between_freedom, within_freedom


def _by_session(cases: Sequence[Units]) -> list[tuple[Sequence[float], ...]]:
    """Return the units of each session, case by case, as far as all cases have that session."""
    return list(zip(*cases, strict=False))


def student_t(freedom: float) -> float:
    """Return the quantile of Student's t for a two-sided interval at LEVEL.

    Exact for one and two degrees of freedom, else by the expansion in 1 / freedom (Abramowitz & Stegun 1964, 26.7.5),
    which is 0.7 % too small for three degrees and better for more.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    if freedom == 1:
        return math.tan(math.pi * LEVEL / 2)
    if freedom == 2:
        return LEVEL * math.sqrt(2 / (1 - LEVEL**2))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def _centre(sessions: Units) -> float:
    return median([value for session in sessions for value in session])


def _resampled(sessions: Sequence[Sequence[Sequence[float]]], rng: random.Random) -> float:
    # Sessions first, with all their cases, then units within them: units of a session share its processes, and so do
    # its cases, so that neither are independent.
    chosen = rng.choices(sessions, k=len(sessions))
    of_cases = zip(*chosen, strict=True)
    return fmean(median([v for units in drawn for v in rng.choices(units, k=len(units))]) for drawn in of_cases)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between the order statistics of a sorted, non-empty sequence."""
    # Definition 7 of Hyndman & Fan 1996, which is NumPy's default too.
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def verdict(interval: Interval, floor: float) -> Verdict:
    """Return `faster` or `slower` only if the whole interval lies outside [1 / floor, floor]; else `same`."""
    # The floor applies to the bound rather than to the median: noise and uncertainty must both be overcome.
    if interval.low > floor:
        return Verdict.FASTER
    if interval.high < 1 / floor:
        return Verdict.SLOWER
    return Verdict.SAME


@dataclass(frozen=True)
class TimedRequest:
    """Hold one request of `calls` calls: the time that the process claims for them, and the referee's clock around
    it."""

    calls: int
    inside_us: float
    outside_us: float


def hidden_us_per_call(requests: Sequence[TimedRequest]) -> float:
    """Return the time per call in µs that the process's own clock does not account for.

    A request costs a constant besides its calls. Comparing requests of K and of 2K calls removes the constant: the
    rest in the slope was hidden from the inside clock. Other load only ever adds, so the lower quartile of the
    unaccounted time represents each size.
    """
    sizes = sorted({request.calls for request in requests})
    if len(sizes) < 2:
        return 0.0
    small, large = sizes[0], sizes[-1]
    # Lower quartiles, because load makes some requests longer and none shorter.
    grown = unaccounted_us([r for r in requests if r.calls == large])
    return (grown - unaccounted_us([r for r in requests if r.calls == small])) / (large - small)


def unaccounted_us(requests: Sequence[TimedRequest]) -> float:
    """Return the lower quartile of the referee's time minus the inside time of a request, in µs."""
    return quantile(sorted(request.outside_us - request.inside_us for request in requests), 0.25)


def scatter_us(requests: Sequence[TimedRequest]) -> float:
    """Return the distance between the quartiles of a request's unaccounted time, in µs per call."""
    beside = sorted(request.outside_us - request.inside_us for request in requests)
    calls = fmean(request.calls for request in requests)
    return (quantile(beside, 0.75) - quantile(beside, 0.25)) / calls


def clocks_agree(
    requests: Sequence[TimedRequest],
    trusted: Sequence[TimedRequest],
    share: float = 0.2,
    least_us: float = 25.0,
    slack_us: float = 0.0,
) -> bool:
    """Return whether the referee's clock agrees with the inside clock.

    Two signs must both speak against it: the slope from K to 2K calls, and a request that costs more besides its
    calls than a request to a trusted process does. Each is tolerated within a share of a call, the clock's
    resolution, and `slack_us` per call for the effect of other load (`scatter_us`).
    """
    calls = fmean(request.calls for request in requests)
    claimed_us = median([request.inside_us / request.calls for request in requests])
    allowed = max(share * claimed_us, least_us, slack_us)
    excess = (unaccounted_us(requests) - unaccounted_us(trusted)) / calls
    if len({request.calls for request in requests}) < 2:
        return excess <= allowed  # calls so large that a request has one alone: there is no slope
    return hidden_us_per_call(requests) <= allowed or excess <= allowed


def referee_us(request: TimedRequest, overhead_us: float) -> float:
    """Return the time per call by the referee's clock, less what a request costs besides; at least a quarter of the
    claim."""
    return max(request.outside_us - overhead_us, request.inside_us / 4) / request.calls
