"""The A/A band of a machine: how far a comparison of a kernel with itself strays from 1.

Measured once per environment with two trusted baseline processes and the protocol of full timing, then kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import fmean, median

from runners.harness import HARNESS_VERSION, environment
from runners.harness.participant import Participant
from runners.harness.sessions import BASELINE, Bench, Timings, started_together
from runners.harness.state import read_json, state_dir, write_json
from runners.harness.statistics import Interval, aa_band
from runners.harness.timing import CANDIDATE, FULL, Plan
from runners.job import Baseline
from runners.targets import Target

COMPARISONS = 8
PLAN = Plan(FULL.sessions, FULL.units, FULL.block_us, FULL.most_calls, 192 << 20, checks=0)
UNMEASURED = 1.10
"""Used by quick timing before a machine's band is known."""
KEPT_S = 7 * 86400.0
RESOLUTION_US = 0.5
"""By how much a call on a CPU can differ between processes that do the same: where code and data lie in memory is drawn
when a process starts, and for the baselines once, by the process that all of them are forked from."""


def band_of(bench: Bench, target: Target, *, measure: bool) -> float:
    """The band of this machine: from the cache, else measured now or, without leave to measure, a wide guess."""
    path = state_dir("bands") / f"{_key(target)}.json"
    kept = read_json(path)
    if isinstance(kept, dict) and time.time() - float(kept.get("measured_at", 0)) < KEPT_S:
        return float(kept["band"])
    if not measure:
        return UNMEASURED
    fresh = dataclasses.replace(bench, baselines=None)
    ratios = [compare_with_itself(fresh, _eager(fresh)).median for _ in range(COMPARISONS)]
    band = aa_band(ratios)
    write_json(path, {"band": band, "ratios": ratios, "measured_at": time.time(), **environment.fixed(target)})
    return band


def resolved(band: float, timings: Timings, target: Target) -> float:
    """The band, no narrower than what is unresolved in calls as short as the baseline's here."""
    if target.family != "cpu":
        return band
    times_us = [median(timings.samples(case, BASELINE)) for case in timings.sessions]
    return max(band, math.exp(fmean(math.log1p(RESOLUTION_US / time_us) for time_us in times_us)))


def compare_with_itself(bench: Bench, start: Callable[[str, int], Callable[[], Participant]]) -> Interval:
    """One whole comparison on the smallest benchmark case. `start(name, arena_bytes)` says how to make either side."""
    case = bench.cases[0]
    timings = Timings({case.name: []})
    only = dataclasses.replace(bench, cases=[case])
    size = only.arena_bytes(PLAN)
    for _ in range(PLAN.sessions):
        sides = started_together([start(name, size) for name in (CANDIDATE, BASELINE)])
        with ExitStack() as ending:
            for side in sides:
                ending.callback(side.close)
            only.session(PLAN, sides, timings)
    return timings.speedup(BASELINE, bench.rng)


def _eager(bench: Bench) -> Callable[[str, int], Callable[[], Participant]]:
    return lambda name, size: bench.start_baseline(name, Baseline.EAGER, size)


def _key(target: Target) -> str:
    parts = [HARNESS_VERSION, environment.fixed(target)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
