"""A/A: the same kernel against itself, through whole paired comparisons. How often is it called different?

    python benchmarks/aa.py --pairs 200
    python benchmarks/aa.py --pairs 100 --target sm_90

Prints the band of this machine (measured first, as full timing does it, with the torch baseline against itself), the
spread of the comparisons, and the rate of those called faster or slower, which is to be at most 2 %.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.backends import Artefact, BuildRequest, backend_for
from runners.harness.band import band_of, compare_with_itself
from runners.harness.devices import Device, device_for
from runners.harness.pool import pool
from runners.harness.sessions import Bench
from runners.harness.statistics import Interval, quantile, verdict
from runners.job import Language, Limits, Verdict
from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from runners.targets import Target, target

HIGHEST_RATE = 0.02
LANGUAGES = {"cpu": Language.CPP, "nvidia": Language.CUDA, "amd": Language.HIP}


def main() -> int:
    """Measure and print; 1 when more than 2 % were called different."""
    parser = argparse.ArgumentParser(description="Compare a kernel with itself.")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--problem", default="softmax_rows")
    parser.add_argument("--target", default="cpu", help="this machine's own")
    parser.add_argument("--fresh-band", action="store_true", help="measure the band again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.fresh_band:
            os.environ["KERNELSCI_STATE"] = str(Path(folder) / "state")
        Path(folder).chmod(0o755)
        here = target(arguments.target)
        device = device_for(here.vendor, here.flush_bytes)
        bench, artefact = _bench(arguments.problem, here, device, Path(folder))
        with device.exclusively():
            return _report(bench, artefact, here, arguments.pairs)


def _bench(name: str, here: Target, device: Device, folder: Path) -> tuple[Bench, Artefact]:
    bundle = load(name)
    problem = open_bundle(bundle)
    seed = [seed for seed in problem.seeds if seed.source.language is LANGUAGES[here.vendor]][-1]
    request = BuildRequest(seed.source, problem.symbol, here.key, folder, Limits())
    artefact = backend_for(seed.source.language).build(request)
    cases = problem.cases(here.key, Purpose.BENCHMARK)
    trusted = pool(device)
    oracle = trusted.borrow(bundle)
    bench = Bench(
        problem=problem,
        bundle=bundle,
        oracle=oracle,
        zygote=trusted.zygote(),
        cases=cases,
        setups=oracle.set_up(cases, folder / "setups"),
        limits=Limits(),
        rng=random.Random(),
        cancel=None,
    )
    return bench, artefact


def _report(bench: Bench, artefact: Artefact, here: Target, pairs: int) -> int:
    band = band_of(bench, here, measure=True)
    print(f"A/A band of this machine: {band:.4f} (a ratio; load average {os.getloadavg()[0]:.1f})")
    started, found = time.monotonic(), []
    for number in range(1, pairs + 1):
        found.append(compare_with_itself(bench, lambda name, size: bench.start_candidate(name, artefact, size)))
        if number % 20 == 0:
            print(f"  {number} pairs, {_different(found, band)} called different", flush=True)
    return _summary(found, band, time.monotonic() - started)


def _different(found: list[Interval], band: float) -> int:
    return sum(verdict(interval, band) is not Verdict.SAME for interval in found)


def _summary(found: list[Interval], band: float, seconds: float) -> int:
    deviations = sorted(abs(math.log(interval.median)) for interval in found)
    counted = Counter(verdict(interval, band).value for interval in found)
    rate = _different(found, band) / len(found)
    print(f"{len(found)} pairs in {seconds:.0f} s: {dict(counted)}")
    print(
        f"deviation from 1: median {math.expm1(quantile(deviations, 0.5)):.2%}, "
        f"95 % {math.expm1(quantile(deviations, 0.95)):.2%}, largest {math.expm1(deviations[-1]):.2%}"
    )
    print(f"called faster or slower: {rate:.2%} (at most {HIGHEST_RATE:.0%})")
    return 0 if rate <= HIGHEST_RATE else 1


if __name__ == "__main__":
    sys.exit(main())
