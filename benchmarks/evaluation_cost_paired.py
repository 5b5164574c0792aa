"""Compare what an evaluation costs in two checkouts: build, checks and quick timing of the C++ softmax.

    python benchmarks/evaluation_cost_paired.py BEFORE [AFTER] [--pairs 10]

Each pair evaluates once in either checkout, one directly after the other and in alternating order, so that the load of
the machine meets both. *cold*: a whole `python -m runners evaluate --quick` with an empty state directory. *warm*:
`evaluate` in a process that has evaluated before, on a kernel it has not seen. The median of the pairs' ratios is
printed with the interval in which the median lies with at least 95 % confidence (order statistics). Processor time
leaves out what ends with its sandbox, which the kernel accounts to nobody, so it compares checkouts only if both run
the same parts in sandboxes. Fails where a median ratio of wall time is above the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median

GOAL = 1.10
HERE = Path(__file__).resolve().parents[1]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Runs in the folder of a checkout, and evaluates one unseen kernel for each line that it reads.
EVALUATES = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what is left behind stays a descendant
from runners.harness import evaluate
from runners.job import Effort, JobSpec, Language, Source, Status
from runners.problems import load, open_bundle
seed = next(seed for seed in open_bundle(load("softmax_rows")).seeds if seed.name == "vectorised")
for line in sys.stdin:
    source = Source(Language.CPP, f"{seed.source.text}\\n// {line.strip()} {time.time_ns()}\\n")
    result = evaluate(JobSpec("warm", load("softmax_rows"), "cpu", source, Effort.QUICK))
    assert result.status is Status.CORRECT and not result.build.cached, result.reasons
    print("done", flush=True)
"""
# Runs a command as the parent of everything that it leaves behind, and prints its time and that of its descendants.
COMMANDS = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
started = time.monotonic()
status = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb")).returncode
wall_s = time.monotonic() - started
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
spent = os.times()
print(status, wall_s, spent.children_user + spent.children_system)
"""
PRINTS_KERNEL = """
from runners.problems import load, open_bundle
print(next(seed for seed in open_bundle(load("softmax_rows")).seeds if seed.name == "vectorised").source.text)
"""


@dataclass(frozen=True)
class Cost:
    """Hold what one evaluation took, in seconds."""

    wall_s: float
    processor_s: float


class Checkout:
    """Evaluate in one checkout, with state and locks of its own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        folder.mkdir()
        self._number = 0
        self._environment = {
            **os.environ, "KERNELSCI_LOCKS": str(folder), "KERNELSCI_STATE": str(folder / "warm-state"),
            "PYTHONPATH": str(root),
        }  # fmt: skip
        self._text = self._output("-c", PRINTS_KERNEL)
        self._warm = subprocess.Popen(
            [sys.executable, "-c", EVALUATES], cwd=root, env=self._environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.warm()
        self.cold()  # writes the bytecode of a fresh checkout

    def cold(self) -> Cost:
        """Evaluate by a command from the shell, with an empty state directory."""
        self._number += 1
        path = self.folder / f"cold-{self._number}.cpp"
        path.write_text(f"{self._text}\n// {time.time_ns()}\n")
        command = ["-m", "runners", "evaluate", "--problem", "softmax_rows", "--candidate", str(path), "--quick"]
        answer = path.with_suffix(".json")
        said = self._output(
            "-c", COMMANDS, str(answer), sys.executable, *command, "--json",
            KERNELSCI_STATE=str(self.folder / f"cold-{self._number}"),
        )  # fmt: skip
        assert json.loads(answer.read_text())["status"] == "correct", answer.read_text()
        return Cost(*map(float, said.split()[1:]))

    def warm(self) -> Cost:
        """Evaluate in the process that has evaluated before."""
        assert self._warm.stdin is not None and self._warm.stdout is not None
        spent_s, started = processor_s(self._warm.pid), time.monotonic()
        print(self._number, file=self._warm.stdin, flush=True)
        assert self._warm.stdout.readline() == "done\n", f"{self.root} does not evaluate"
        return Cost(time.monotonic() - started, processor_s(self._warm.pid) - spent_s)

    def close(self) -> None:
        """End the process of the warm evaluations."""
        self._warm.communicate()

    def _output(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env={**self._environment, **environment}, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout


def processor_s(pid: int) -> float:
    """Return the processor seconds of a process, of its living descendants, and of those that were waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _descendants(pid)) / TICKS_PER_S


def _descendants(pid: int) -> Iterator[list[str]]:
    """Yield the fields of `/proc/PID/stat` behind the name, of the process and everything below it."""
    fields: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        waiting += [child for child, found in fields.items() if int(found[1]) == parent]
        yield fields.get(parent, ["0"] * 15)


def main() -> int:
    """Measure, print, and return 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=HERE)
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pair = [
            Checkout(given.before.resolve(), Path(folder, "0")),
            Checkout(given.after.resolve(), Path(folder, "1")),
        ]
        try:
            kinds = {kind: measured(pair, kind, given.pairs) for kind in ("warm", "cold")}
        finally:
            for checkout in pair:
                checkout.close()
    return max(report(kind, costs) for kind, costs in kinds.items())


def measured(pair: list[Checkout], kind: str, pairs: int) -> list[tuple[Cost, Cost]]:
    """Return the costs of the pairs, before and after, printing each."""
    found = []
    for number in range(pairs):
        order = (0, 1) if number % 2 else (1, 0)
        costs = {side: getattr(pair[side], kind)() for side in order}
        found.append((costs[0], costs[1]))
        print(
            kind,
            *(f"{cost.wall_s:.2f} s wall {cost.processor_s:.2f} s processor" for cost in found[-1]),
            flush=True,
        )
    return found


def report(kind: str, costs: list[tuple[Cost, Cost]]) -> int:
    """Print the ratios of one kind, and return 1 where the median of the wall time is above the goal."""
    wall = sorted(after.wall_s / before.wall_s for before, after in costs)
    processor = sorted(after.processor_s / before.processor_s for before, after in costs)
    for name, ratios in (("wall", wall), ("processor", processor)):
        low, high = interval(ratios)
        print(f"{kind} {name}: {median(ratios):.3f} [{low:.3f}, {high:.3f}] of {len(ratios)} pairs")
    return int(median(wall) > GOAL)


def interval(ordered: list[float]) -> tuple[float, float]:
    """Return the order statistics between which the median lies with at least 95 %, or the whole range of few."""
    count = len(ordered)
    outside, rank = 0.0, 0
    while rank < count // 2 and (outside := outside + comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    lowest = max(rank - 1, 0)
    return ordered[lowest], ordered[count - 1 - lowest]


if __name__ == "__main__":
    sys.exit(main())
