"""Compare a program with itself (A/A): count how often it is called different, and by how much it seems to differ.

    python benchmarks/aa.py --pairs 200
    python benchmarks/aa.py --target sm_90 --problems PATH… --out aa.jsonl

Without `--problems` a native seed is compared with itself, `--pairs` times. With them (KernelBench files or
directories, or any format that can be imported), the reference of each problem is evaluated as a candidate against
itself, by the same way as every candidate: nothing of the harness is left out. Results are appended to `--out`, a JSON
object a line, and problems that it holds already are left out, so that a long list can be done in several calls.
Several processes, each with a GPU of its own, share a list where all are given the same folder with `--claims`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.backends import Artefact, BuildRequest, backend_for
from runners.harness import evaluate
from runners.harness.devices.device import Device, device_for
from runners.harness.oracle.pool import pool
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.noise import comparisons_with_itself, known_floor, measured_floor
from runners.harness.timing.sessions import Bench
from runners.harness.timing.statistics import Interval, quantile, verdict
from runners.job import Baseline, Effort, JobResult, JobSpec, Language, Limits, ProblemBundle, Verdict
from runners.problems import load, open_bundle
from runners.problems.base import ProblemError, Purpose
from runners.targets import Target, target

HIGHEST_RATE = 0.02
DEVICE_DEVIATION, CALL_DEVIATION = 0.01, 0.03
LANGUAGES = {"cpu": Language.CPP, "nvidia": Language.CUDA, "amd": Language.HIP}
GIB = 1 << 30
MOST_FAILURES_IN_A_ROW = 4


def main() -> int:
    """Measure and print; 1 when too many comparisons were called different."""
    parser = argparse.ArgumentParser(description="Compare programs with themselves.")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--problem", default="softmax_rows")
    parser.add_argument("--problems", nargs="*", default=[], metavar="PATH")
    parser.add_argument("--target", default="cpu", help="this machine's own")
    parser.add_argument("--out", type=Path, help="where to append results of --problems")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="start no problem after so many seconds")
    parser.add_argument("--seed", type=int, help="shuffle the problems, so that a budget leaves a fair sample")
    parser.add_argument("--claims", type=Path, metavar="FOLDER", help="share the list with other processes")
    parser.add_argument("--fresh-floor", action="store_true", help="measure the noise floor again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.fresh_floor:
            os.environ["KERNELSCI_STATE"] = str(Path(folder) / "state")
        Path(folder).chmod(0o755)
        here = target(arguments.target)
        if arguments.problems:
            return _problems(arguments, here)
        device = device_for(here.vendor, here.flush_bytes)
        bench, artefact = _bench(arguments.problem, here, device, Path(folder))
        with device.exclusively():
            return _pairs(bench, artefact, here, arguments.pairs)


def _problems(arguments: argparse.Namespace, here: Target) -> int:
    out = arguments.out or Path(tempfile.mkdtemp()) / "aa.jsonl"
    known = {row["problem"]: row for row in _rows(out)}
    started = time.monotonic()
    failures = 0
    for path in _shuffled(_files(arguments.problems), arguments.seed):
        if failures == MOST_FAILURES_IN_A_ROW:
            print(f"stopped: {failures} problems in a row were not timed")
            break
        if path.stem in known or time.monotonic() - started > arguments.budget_s:
            continue
        if arguments.claims and not _claimed(arguments.claims, path.stem):
            continue
        row = known[path.stem] = _evaluated(path, here)
        failures = 0 if row.get("speedup") else failures + 1
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
    return _conclusion(list(known.values()))


def _claimed(folder: Path, problem: str) -> bool:
    """Claim the problem by creating its folder. Return False if another process has claimed it."""
    try:
        (folder / problem).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _rows(out: Path) -> Iterator[dict[str, Any]]:
    if out.exists():
        yield from map(json.loads, out.read_text().splitlines())


def _files(paths: list[str]) -> list[Path]:
    """Return the problems: a directory of Python files stands for them, any other directory for itself."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.glob("*.py"), key=_number) if path.is_dir() else []
        found += inside if inside and not (path / "problem.yaml").exists() else [path]
    return found


def _shuffled(paths: list[Path], seed: int | None) -> list[Path]:
    return paths if seed is None else random.Random(seed).sample(paths, len(paths))


def _number(path: Path) -> tuple[int, str]:
    head = path.stem.split("_")[0]
    return (int(head) if head.isdigit() else 0, path.stem)


def _evaluated(path: Path, here: Target) -> dict[str, Any]:
    """Evaluate a problem's reference against itself."""
    started = time.monotonic()
    try:
        bundle = _allowing_everything(load(path))
        source = baseline_source(open_bundle(bundle), Baseline.EAGER, here.key)
        result = evaluate(JobSpec("aa", bundle, here.key, source, Effort.FULL))
    except ProblemError as error:
        return {"problem": path.stem, "status": "not_read", "reasons": error.complaints, "seconds": 0.0}
    return {"problem": path.stem, **_figures(result), "seconds": round(time.monotonic() - started, 2)}


def _allowing_everything(bundle: ProblemBundle) -> ProblemBundle:
    """Return a problem of kernelbench.com without its forbidden operations, which its own reference may use."""
    if bundle.format != "kernelbench_hard":
        return bundle
    task = {**json.loads(bundle.files[bundle.entry]), "forbidden": []}
    return dataclasses.replace(bundle, files={**bundle.files, bundle.entry: json.dumps(task)})


def _figures(result: JobResult) -> dict[str, Any]:
    timed = [case for case in result.cases if case.candidate_us is not None]
    speedup, call = result.speedup, result.call_speedup
    memory = result.memory
    return {
        "status": result.status.value,
        "reasons": [reason[:300] for reason in result.reasons],
        "flags": result.flags,
        "basis": sorted({case.basis.value for case in timed}),
        "speedup": None if speedup is None else [speedup.median, speedup.low, speedup.high, speedup.verdict.value],
        "call_speedup": None if call is None else [call.median, call.low, call.high, call.verdict.value],
        "floor": result.noise_floor.ratio if result.noise_floor else None,
        "device_us": [case.candidate_us for case in timed],
        "call_us": [case.candidate_call_us for case in timed],
        "roofline_share": [case.roofline_share for case in timed],
        "samples_us": [
            {side: [round(sample, 2) for sample in case.samples.get(side, [])[:48]] for side in case.samples}
            for case in timed
        ],
        "samples": sum(len(case.samples.get("candidate", [])) for case in timed),
        "memory": None if memory is None else [memory.footprint_bytes, memory.needed_bytes, memory.peak_bytes],
        "reference_bytes": None if memory is None else memory.reference_bytes,
        "stages": {stage.name: round(stage.seconds, 2) for stage in result.stages},
        "environment": {
            key: result.environment.get(key) for key in ("gpu", "driver", "torch", "triton", "work_queues")
        },
        "launch": result.profile.get("launch"),
    }


def _line(row: dict[str, Any]) -> str:
    words = [f"{row['problem'][:44]:<44} {row['status']:<11} {row['seconds']:5.1f} s"]
    if row.get("speedup"):
        words.append(f"device {row['speedup'][0]:.4f} {row['speedup'][3]}")
        words.append(f"{median(row['device_us']):.1f} µs")
    if row.get("call_speedup"):
        words.append(f"call {row['call_speedup'][0]:.4f} {median(row['call_us']):.1f} µs")
    if row.get("memory"):
        words.append(f"memory {row['memory'][0] / GIB:.2f} → {row['memory'][2] / GIB:.2f} GiB")
    return "  ".join([*words, " ".join(row.get("flags") or []), "; ".join(row["reasons"])[:160]])


def _conclusion(rows: list[dict[str, Any]]) -> int:
    timed = [row for row in rows if row.get("speedup")]
    if not timed:
        print("nothing was timed")
        return 1
    different = [row["problem"] for row in timed if row["speedup"][3] != Verdict.SAME.value]
    print(
        f"\n{len(rows)} problems, {len(timed)} timed ({len(timed) / len(rows):.1%}); different: {different or 'none'}"
    )
    on_device = [row["speedup"][0] for row in timed if row["basis"] == ["device"]]
    by_call = [row["call_speedup"][0] for row in timed if row.get("call_speedup")]
    for name, ratios, limit in (("device", on_device, DEVICE_DEVIATION), ("call", by_call, CALL_DEVIATION)):
        _print_deviations(name, ratios, limit)
    seconds = sorted(row["seconds"] for row in timed)
    print(f"seconds an evaluation: median {quantile(seconds, 0.5):.1f}, p95 {quantile(seconds, 0.95):.1f}")
    for row in rows:
        if not row.get("speedup"):
            print(
                f"not timed: {row['problem']}: {row['status']}: {'; '.join(row['reasons'])[:200]} {row.get('memory')}"
            )
    return 1 if different else 0


def _print_deviations(name: str, ratios: list[float], limit: float) -> None:
    if not ratios:
        return
    deviations = sorted(abs(ratio - 1) for ratio in ratios)
    beyond = sum(deviation > limit for deviation in deviations)
    print(
        f"{name} time, {len(ratios)} problems: |median - 1| median {quantile(deviations, 0.5):.2%}, "
        f"p95 {quantile(deviations, 0.95):.2%}, largest {deviations[-1]:.2%}; beyond {limit:.0%}: {beyond}"
    )


def _bench(name: str, here: Target, device: Device, folder: Path) -> tuple[Bench, Artefact]:
    bundle = load(name)
    problem = open_bundle(bundle)
    seed = [seed for seed in problem.seeds if seed.source.language is LANGUAGES[here.vendor]][-1]
    request = BuildRequest(seed.source, problem.symbol, here.key, folder, Limits())
    artefact = backend_for(seed.source.language).build(request)
    cases = problem.cases(here.key, Purpose.BENCHMARK)
    oracle = pool(device).borrow(bundle)
    setups = oracle.set_up(cases, folder / "setups")
    return Bench(problem, bundle, oracle, cases, setups, Limits(), random.Random(), None), artefact


def _pairs(bench: Bench, artefact: Artefact, here: Target, pairs: int) -> int:
    floor = (known_floor(here) or measured_floor(here)).ratio
    print(f"noise floor of this machine: {floor:.4f} (a ratio; load average {os.getloadavg()[0]:.1f})")
    started, found = time.monotonic(), []
    with closing(comparisons_with_itself(bench, artefact, bench.cases[0])) as intervals:
        for number, interval in enumerate(islice(intervals, pairs), 1):
            found.append(interval)
            if number % 20 == 0:
                print(f"  {number} pairs, {_different(found, floor)} called different", flush=True)
    return _summary(found, floor, time.monotonic() - started)


def _different(found: list[Interval], floor: float) -> int:
    return sum(verdict(interval, floor) is not Verdict.SAME for interval in found)


def _summary(found: list[Interval], floor: float, seconds: float) -> int:
    deviations = sorted(abs(math.log(interval.median)) for interval in found)
    counted = Counter(verdict(interval, floor).value for interval in found)
    rate = _different(found, floor) / len(found)
    print(f"{len(found)} pairs in {seconds:.0f} s: {dict(counted)}")
    print(
        f"deviation from 1: median {math.expm1(quantile(deviations, 0.5)):.2%}, "
        f"95 % {math.expm1(quantile(deviations, 0.95)):.2%}, largest {math.expm1(deviations[-1]):.2%}"
    )
    print(f"called faster or slower: {rate:.2%} (at most {HIGHEST_RATE:.0%})")
    return 0 if rate <= HIGHEST_RATE else 1


if __name__ == "__main__":
    sys.exit(main())
