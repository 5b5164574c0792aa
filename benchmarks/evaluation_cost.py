"""Measure what an evaluation costs: build, checks and quick timing of the C++ softmax, against building the same kernel
through torch's load_inline, in one run.

    python benchmarks/evaluation_cost.py [--repeats 3]

*cold*: a whole `python -m runners evaluate --quick` from a shell, with empty caches. *warm*: `evaluate` in a worker
that has evaluated before, on a kernel it has not seen. *load_inline*: the call alone, torch already imported, an empty
build directory. Medians of the repeats, interleaved. Goals: cold at least 6 times less than load_inline, warm 12.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.harness import evaluate
from runners.job import Effort, JobSpec, Language, Source, Status
from runners.problems import load, open_bundle

ROOT = Path(__file__).resolve().parents[1]
COLD_GOAL, WARM_GOAL = 6.0, 12.0
FLAGS = ("-O3", "-march=native", "-fopenmp")

BINDING = """
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  softmax_rows(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1));
  return out;
}
"""
LOAD_INLINE = """
import sys, time, torch
from torch.utils.cpp_extension import load_inline
folder, text, flags = sys.argv[1], open(sys.argv[2]).read(), sys.argv[3:]
start = time.monotonic()
module = load_inline("softmax_rows_inline", [text], functions=["run"], extra_cflags=flags, build_directory=folder)
seconds = time.monotonic() - start
x = torch.randn(8, 100)
assert torch.allclose(module.run(x), torch.softmax(x, -1), atol=1e-5)
print(seconds)
"""


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description="Cost of one evaluation.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {"cold": [], "warm": [], "load_inline": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELSCI_STATE"] = str(Path(folder) / "warm-state")
        os.environ["KERNELSCI_LOCKS"] = folder  # waiting for other evaluations is not part of the cost
        warm(-1)
        for number in range(repeats):
            seconds["load_inline"].append(load_inline(Path(folder), number))
            seconds["cold"].append(cold(Path(folder), number))
            seconds["warm"].append(warm(number))
            print("  ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items()), flush=True)
    return report({name: median(values) for name, values in seconds.items()})


def report(seconds: dict[str, float]) -> int:
    """Print the ratios; 1 when a goal is missed."""
    missed = 0
    print(f"load_inline builds in {seconds['load_inline']:.2f} s (load average {os.getloadavg()[0]:.1f})")
    for name, goal in (("cold", COLD_GOAL), ("warm", WARM_GOAL)):
        ratio = seconds["load_inline"] / seconds[name]
        missed += ratio < goal
        print(f"{name} evaluation: {seconds[name]:.2f} s, {ratio:.1f} times less (goal {goal:g})")
    return 1 if missed else 0


def kernel(note: str) -> str:
    """Return the vectorised softmax, made unique so that no build cache knows it."""
    seeds = {seed.name: seed.source for seed in open_bundle(load("softmax_rows")).seeds}
    return f"{seeds['vectorised'].text}\n// {note} {time.time_ns()}\n"


def cold(folder: Path, number: int) -> float:
    """Return the seconds of a command from the shell, with an empty state directory."""
    path = folder / f"cold-{number}.cpp"
    path.write_text(kernel("cold"))
    command = [sys.executable, "-m", "runners", "evaluate", "--problem", "softmax_rows", "--candidate", str(path)]
    environment = {**os.environ, "KERNELSCI_STATE": str(folder / f"cold-state-{number}")}
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--quick", "--json"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    seconds = time.monotonic() - started
    result = json.loads(done.stdout)
    assert result["status"] == Status.CORRECT, result["reasons"]
    return seconds


def warm(number: int) -> float:
    """Return the seconds of one more evaluation in this process."""
    source = Source(Language.CPP, kernel(f"warm {number}"))
    started = time.monotonic()
    result = evaluate(JobSpec("warm", load("softmax_rows"), "cpu", source, Effort.QUICK))
    assert result.status is Status.CORRECT, result.reasons
    assert result.build is not None and not result.build.cached
    return time.monotonic() - started


def load_inline(folder: Path, number: int) -> float:
    """Return the seconds in which torch builds the same kernel, in a fresh process and an empty directory."""
    build = folder / f"inline-{number}"
    build.mkdir()
    text = folder / f"inline-{number}.txt"
    text.write_text(kernel("inline") + BINDING)
    command = [sys.executable, "-c", LOAD_INLINE, str(build), str(text), *FLAGS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
