"""Measure both errors of the gate: alarms on a kernel against itself, and slow-downs that it does not find.

    python benchmarks/gate.py --pairs 50 --slowed 10
    python benchmarks/gate.py --target sm_90 --out gate.jsonl

A pair is one whole `gate` of a kernel against itself: an honest gate says "not slower" every time. A slowed kernel does
the work of every twentieth row twice, which is 5 % more work by construction; the gate should find it. Both are made
from a seed of softmax_rows, in C++ on a CPU and in CUDA on an NVIDIA GPU, unless they are named. Results are appended
to `--out`, a JSON object a line, and what it holds already counts, so that a long series can be measured in several
calls. Exits with 1 if there was a false alarm, or if fewer than `LEAST_FOUND` of the slowed kernels were found.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.gate.decision import Rules, Ruling, decide, pooled, resolution
from runners.harness import evaluate
from runners.job import JobSpec, Source
from runners.problems import load, open_bundle
from runners.targets import target
from runners.verbs.sources import read_source

LEAST_FOUND = 0.9
PROBLEM = "softmax_rows"
EVERY = 20
_LAST_STEP = "    scale(in, result, cols, maximum, 1.0f / sum);\n"
_TWICE = f"""\
    if (row % {EVERY} == 0) {{
      const float again = maximum_of(in, cols);
      const float second = sum_of_exponentials(in, result, cols, again);
      scale(in, result, cols, again, 1.0f / second);
    }}
"""
# On a GPU the second time is at the end of the grid, when the row has left the caches.
_ROW = f"  const int64_t row = blockIdx.x < rows ? blockIdx.x : (blockIdx.x - rows) * {EVERY};\n"
# By a target's vendor: the seed, and what of its text is replaced by what.
SLOWED = {
    "cpu": ("vectorised", {_LAST_STEP: _LAST_STEP + _TWICE}),
    "nvidia": (
        "cuda_rows",
        {
            "int64_t cols) {\n  __shared__": f"int64_t rows, int64_t cols) {{\n{_ROW}  __shared__",
            "x + blockIdx.x * cols": "x + row * cols",
            "out[blockIdx.x * cols + c]": "out[row * cols + c]",
            "<<<rows, THREADS, 0, stream>>>(x, out, cols)": (
                f"<<<rows + rows / {EVERY}, THREADS, 0, stream>>>(x, out, rows, cols)"
            ),
        },
    ),
}


def main() -> int:
    """Measure and print; 1 for a false alarm or too many slow-downs that were not found."""
    parser = argparse.ArgumentParser(description="False alarms and missed slow-downs of the gate.")
    parser.add_argument("--pairs", type=int, default=50, help="comparisons of the kernel with itself")
    parser.add_argument("--slowed", type=int, default=10, help="comparisons of the slowed kernel with the kernel")
    parser.add_argument("--problem", default=PROBLEM)
    parser.add_argument("--target", default="cpu", help="this machine's own")
    parser.add_argument("--kernel", type=Path, help="the kernel; default: a seed")
    parser.add_argument("--slow-kernel", type=Path, help="the same, slowed by 5 %%")
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--out", type=Path, help="where to append results")
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="start no comparison after so many seconds"
    )
    arguments = parser.parse_args()
    out = arguments.out or Path(tempfile.mkdtemp()) / "gate.jsonl"
    kernel, slow = _kernels(arguments)
    started = time.monotonic()
    for kind, candidate in _missing(out, arguments):
        if time.monotonic() - started > arguments.budget_s:
            break
        row = _compared(kind, slow if candidate else kernel, kernel, arguments)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{kind}: {row['ruling']}, {row['reason']}", flush=True)
    return _report(_rows(out))


def _kernels(arguments: argparse.Namespace) -> tuple[Source, Source]:
    """Return the kernel and the slowed one."""
    if arguments.kernel and arguments.slow_kernel:
        return read_source(arguments.kernel), read_source(arguments.slow_kernel)
    vendor = target(arguments.target).vendor
    if arguments.kernel or arguments.slow_kernel or arguments.problem != PROBLEM or vendor not in SLOWED:
        sys.exit("Name both --kernel and --slow-kernel.")
    name, changes = SLOWED[vendor]
    seed = next(seed for seed in open_bundle(load(PROBLEM)).seeds if seed.name == name)
    slow = seed.source.text
    for old, new in changes.items():
        if slow.count(old) != 1:
            sys.exit(f"The seed {name} has changed: it cannot be slowed here.")
        slow = slow.replace(old, new)
    return seed.source, replace(seed.source, text=slow)


def _missing(out: Path, arguments: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Yield what is still to be compared, both kinds in turns so that a budget leaves some of each."""
    known = [row["kind"] for row in _rows(out)]
    left = {"pair": arguments.pairs - known.count("pair"), "slowed": arguments.slowed - known.count("slowed")}
    most = max(1, arguments.pairs // max(1, arguments.slowed))
    while any(count > 0 for count in left.values()):
        for kind, turns in (("pair", most), ("slowed", 1)):
            for _ in range(min(turns, max(0, left[kind]))):
                left[kind] -= 1
                yield kind, kind == "slowed"


def _compared(kind: str, candidate: Source, against: Source, arguments: argparse.Namespace) -> dict[str, Any]:
    spec = JobSpec(uuid.uuid4().hex, load(arguments.problem), arguments.target, candidate, parent=against)
    started = time.monotonic()
    decision = decide(spec, Rules(arguments.tolerance), evaluate)
    ratio = decision.deciding.versus_parent
    return {
        "kind": kind,
        "ruling": decision.ruling.in_words,
        "reason": decision.reason,
        "looks": len(decision.looks),
        "ratio": ratio and [ratio.median, ratio.low, ratio.high],
        "floor": ratio and ratio.band,
        "resolution": ratio and resolution(pooled([ratio]), arguments.tolerance),
        "load": os.getloadavg()[0],
        "device": decision.deciding.environment.get("device", ""),
        "seconds": round(time.monotonic() - started, 1),
    }


def _report(rows: list[dict[str, Any]]) -> int:
    """Print counts by kind and return the exit code."""
    pairs, slowed = ([row for row in rows if row["kind"] == kind] for kind in ("pair", "slowed"))
    alarms = [row for row in pairs if row["ruling"] == Ruling.SLOWER.in_words]
    found = [row for row in slowed if row["ruling"] == Ruling.SLOWER.in_words]
    silent = [row for row in slowed if row["ruling"] == Ruling.NOT_SLOWER.in_words]
    undecided = [row for row in rows if row["ruling"] == Ruling.UNDECIDED.in_words]
    lost = [row for row in rows if row["ruling"] in (Ruling.NO_VERDICT.in_words, Ruling.WRONG.in_words)]
    seconds = sum(row["seconds"] for row in rows) / max(1, len(rows))
    print(f"{len(alarms)} false alarms in {len(pairs)} pairs")
    print(
        f"{len(found)} of {len(slowed)} slowed kernels found, {len(silent)} let through, {len(undecided)} undecided"
    )
    print(f"{len(lost)} without a verdict; {seconds:.0f} s each; {sum(row['looks'] for row in rows)} looks in all")
    return int(bool(alarms) or len(found) < LEAST_FOUND * len(slowed))


def _rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


if __name__ == "__main__":
    sys.exit(main())
