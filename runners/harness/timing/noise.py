"""Measure the noise floor of a machine: how far comparisons of a program with itself stray from 1.

It is a property of the machine and of the protocol, not of the problem. So it is measured once per environment on a
problem that we ship, with the protocol of full timing, and kept. A speedup counts only beyond it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import random
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import fmean, median

from runners.backends import Artefact, BuildRequest, backend_for
from runners.errors import BASELINE, CANDIDATE, InfraFailure
from runners.harness.devices.capacity import device_memory
from runners.harness.devices.device import device_for
from runners.harness.oracle.pool import pool
from runners.harness.timing import environment
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.environment import HARNESS_VERSION
from runners.harness.timing.plan import FULL
from runners.harness.timing.sessions import Bench, Timings
from runners.harness.timing.statistics import Interval
from runners.job import Baseline, Language, Limits, NoiseFloor
from runners.problems import load, open_bundle
from runners.problems.base import Case, Problem, Purpose
from runners.sandbox import work_folder
from runners.state import read_json, state_dir, write_json
from runners.targets import Target

# Several launches a call and parameters: what a single launch does not show, this does.
PROBLEM = "layernorm_residual"
# Below six, no deviation is dropped as an outlier (`floor_of`).
LEAST_COMPARISONS, MOST_COMPARISONS = 6, 12
# Stop comparing once the last two comparisons moved the floor by less than this, in log.
SETTLED = 0.002
# Comparisons whose processes start together. Two batches make the least number.
TOGETHER = 3
MARGIN, LEAST = 1.25, 1.01
# A floor above this is measured again, and warned of where it stays.
WIDE = 1.03
# As full timing, with smaller contents.
PLAN = dataclasses.replace(FULL, content_bytes=192 << 20, checks=0)
# Used by quick timing before a machine's floor is known.
UNMEASURED = NoiseFloor(1.10)
# A wide floor was probably measured beside other load, so it is measured again soon.
KEPT_S, KEPT_WIDE_S = 7 * 86400.0, 3600.0
# By how much a call on a CPU can differ between processes that do the same: where code and data lie in memory is drawn
# when a process starts.
RESOLUTION_US = 0.5


def known_floor(target: Target) -> NoiseFloor | None:
    """Return this machine's floor if it was measured and is recent enough."""
    return _kept(_path(target))


def measured_floor(target: Target) -> NoiseFloor:
    """Measure this machine's floor and store it. The caller holds the device alone.

    Raises InfraFailure if the shipped problem cannot be run.
    """
    found = _measured(target)
    if found.ratio > WIDE:
        found = min(found, _measured(target), key=lambda floor: floor.ratio)
        found = dataclasses.replace(found, wide=found.ratio > WIDE)
    # The environment is stored with the figure so that a person can see what it was measured with.
    write_json(_path(target), {**environment.fixed(target), **dataclasses.asdict(found)})
    return found


def _path(target: Target) -> Path:
    return state_dir("noise") / f"{_key(target)}.json"


def resolved(floor: float, timings: Timings, target: Target) -> float:
    """Return the floor, but no less than what cannot be resolved in calls as short as the baseline's here."""
    if target.family != "cpu":
        return floor
    times_us = [median(timings.samples(case, BASELINE)) for case in timings.sessions]
    return max(floor, math.exp(fmean(math.log1p(RESOLUTION_US / time_us) for time_us in times_us)))


def floor_of(ratios: Sequence[float]) -> float:
    """Return the floor from comparisons of a program with itself.

    It is the largest deviation in log except the very largest, which is often an outlier, times a margin for what a
    few comparisons do not show.
    """
    deviations = sorted(abs(math.log(ratio)) for ratio in ratios)
    # With fewer comparisons there is no telling an outlier from the spread.
    if len(deviations) >= LEAST_COMPARISONS:
        deviations.pop()
    return max(LEAST, math.exp(MARGIN * max(deviations, default=0.0)))


def comparisons_with_itself(bench: Bench, artefact: Artefact, case: Case) -> Generator[Interval]:
    """Compare an artefact with itself on a case, again and again, each time in fresh processes.

    On a GPU those of a few comparisons start together: a process imports torch for four seconds, six or eighteen do so
    at the same time, and the comparison takes one.
    """
    plan = dataclasses.replace(PLAN.on_gpu(), arena_bytes=64 << 20) if bench.oracle.on_gpu else PLAN
    sides = {CANDIDATE: artefact, BASELINE: artefact}
    together = TOGETHER if bench.oracle.on_gpu else 1
    while True:
        with ExitStack() as ending:
            benches = [dataclasses.replace(bench, cases=[case]) for _ in range(together)]
            for one in benches:
                ending.callback(one.close)
            # Starts nothing on a device that has no room for all; each comparison starts its own then.
            benches[0].start_ahead(plan, sides, benches[1:])
            for one in benches:
                yield one.measure(plan, sides, lambda text: None).speedup(BASELINE, bench.rng)


def _kept(path: Path) -> NoiseFloor | None:
    kept = read_json(path)
    if not isinstance(kept, dict):
        return None
    names = {field.name for field in dataclasses.fields(NoiseFloor)}
    floor = NoiseFloor(**{name: value for name, value in kept.items() if name in names})
    age_s = time.time() - floor.measured_at
    return floor if age_s < (KEPT_WIDE_S if floor.wide else KEPT_S) else None


def _measured(target: Target) -> NoiseFloor:
    bundle = load(PROBLEM)
    problem = open_bundle(bundle)
    device = device_for(target.vendor, target.flush_bytes)
    warm = pool(device)
    oracle = warm.borrow(bundle)
    try:
        with work_folder("noise-") as folder:
            case = problem.cases(target.key, Purpose.BENCHMARK)[0]
            setups = oracle.set_up([case], folder / "setups")
            rng = random.Random()  # noqa: S311 - order of blocks
            memory = device_memory(device)
            bench = Bench(
                problem, bundle, oracle, [case], setups, Limits(), rng, None, warm.warm_workers, device_bytes=memory
            )
            built = _artefact(problem, target, folder)
            # `PROBLEM` stays in one stream, as do most that are evaluated.
            artefact = dataclasses.replace(built, one_stream=target.vendor == "nvidia")
            with closing(comparisons_with_itself(bench, artefact, case)) as intervals:
                ratios = _until_settled(interval.median for interval in intervals)
    finally:
        oracle.close()
    driver = str(environment.fixed(target).get("driver", ""))
    return NoiseFloor(floor_of(ratios), len(ratios), time.time(), driver, round(os.getloadavg()[0], 2))


def _until_settled(compared: Iterable[float]) -> list[float]:
    """Take comparisons until further ones no longer move the floor."""
    ratios: list[float] = []
    floors: list[float] = []
    for ratio in compared:
        ratios.append(ratio)
        floors.append(math.log(floor_of(ratios)))
        settled = max(floors[-2:]) - min(floors[-2:]) < SETTLED
        if len(ratios) >= MOST_COMPARISONS or (settled and len(ratios) >= LEAST_COMPARISONS):
            break
    return ratios


def _artefact(problem: Problem, target: Target, folder: Path) -> Artefact:
    """Build what is compared with itself: on a CPU a C++ seed, whose processes start quickly, else the reference."""
    source = baseline_source(problem, Baseline.EAGER, target.key)
    if target.family == "cpu":
        source = next(seed.source for seed in problem.seeds if seed.source.language is Language.CPP)
    artefact = backend_for(source.language).build(
        BuildRequest(source, problem.symbol, target.key, folder, Limits())
    )
    if artefact.path is None:
        raise InfraFailure(f"the noise floor cannot be measured: {artefact.report.log[:500]}")
    return artefact


def _key(target: Target) -> str:
    parts = [HARNESS_VERSION, environment.fixed(target)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
