"""The A/A band of a machine: how far a comparison of a kernel with itself strays from 1.

Measured once per environment with two trusted baseline processes and the protocol of full timing, then kept.
"""

from __future__ import annotations

import hashlib
import json
import time

from runners.harness import HARNESS_VERSION, environment
from runners.harness.participant import Participant
from runners.harness.sessions import BASELINE, Bench, Timings
from runners.harness.state import read_json, state_dir, write_json
from runners.harness.statistics import aa_band
from runners.harness.timing import CANDIDATE, FULL, Plan
from runners.job import Baseline
from runners.targets import Target

COMPARISONS = 8
PLAN = Plan(FULL.sessions, FULL.units, FULL.block_us, FULL.most_calls, 192 << 20, checks=0)
UNMEASURED = 1.10
"""Used by quick timing before a machine's band is known."""
KEPT_S = 7 * 86400.0


def band_of(bench: Bench, target: Target, *, measure: bool) -> float:
    """The band of this machine: from the cache, else measured now or, without leave to measure, a wide guess."""
    path = state_dir("bands") / f"{_key(target)}.json"
    kept = read_json(path)
    if isinstance(kept, dict) and time.time() - float(kept.get("measured_at", 0)) < KEPT_S:
        return float(kept["band"])
    if not measure:
        return UNMEASURED
    ratios = [_compare_with_itself(bench) for _ in range(COMPARISONS)]
    band = aa_band(ratios)
    write_json(path, {"band": band, "ratios": ratios, "measured_at": time.time(), **environment.fixed(target)})
    return band


def _compare_with_itself(bench: Bench) -> float:
    case = bench.cases[0]
    timings = Timings({case.name: []})
    only = Bench(
        bench.problem, bench.bundle, bench.oracle, bench.zygote, [case], bench.limits, bench.rng, bench.cancel
    )
    size = only.arena_bytes(PLAN)
    for _ in range(PLAN.sessions):
        sides: list[Participant] = []
        try:
            sides += [only.baseline(name, Baseline.EAGER, size) for name in (CANDIDATE, BASELINE)]
            only.session(PLAN, sides, timings)
        finally:
            for side in sides:
                side.close()
    return timings.speedup(BASELINE, bench.rng).median


def _key(target: Target) -> str:
    parts = [HARNESS_VERSION, environment.fixed(target)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
