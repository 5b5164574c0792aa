"""Simulate the rules of the gate on machines of known noise: false alarms, slow-downs found, let through, undecided.

    python -m benchmarks.gate_rules

The harness is left out. A look is a draw: the true ratio, times what the machine does to one comparison (`drift`, its
standard deviation in log), times what the interval knows of (`half`, its half-width). The noise floor is drawn as
the harness measures it, from six comparisons (`runners.harness.timing.noise.floor_of`), so it is sometimes too small.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from dataclasses import dataclass

from runners.gate.decision import Rules, Ruling, ruling_of
from runners.harness.timing.noise import LEAST_COMPARISONS, floor_of
from runners.job import Speedup, Verdict

NORMAL = 1.96
SLOWED = (0.0, 0.02, 0.034, 0.05, 0.08)


@dataclass(frozen=True)
class Machine:
    """Hold the noise of a machine, in log."""

    drift: float
    half: float

    def deviation(self, rng: random.Random) -> float:
        """Return by how much one comparison strays."""
        return rng.gauss(0, self.drift) + rng.gauss(0, self.half / NORMAL)

    def floor(self, rng: random.Random) -> float:
        """Return a noise floor as the harness measures it."""
        return floor_of([math.exp(self.deviation(rng)) for _ in range(LEAST_COMPARISONS)])

    def look(self, slowed: float, floor: float, rng: random.Random) -> Speedup:
        """Return one comparison of a kernel that takes `1 + slowed` times as long."""
        centre = self.deviation(rng) - math.log1p(slowed)
        low, high = math.exp(centre - self.half), math.exp(centre + self.half)
        return Speedup(math.exp(centre), low, high, "parent", floor, Verdict.SAME)


# From a quiet machine to one that also compiles for seven people.
MACHINES = (Machine(0.002, 0.003), Machine(0.008, 0.005), Machine(0.015, 0.010), Machine(0.030, 0.020))


def gate(machine: Machine, slowed: float, rules: Rules, rng: random.Random) -> tuple[Ruling, int]:
    """Return what one gate says, and after how many looks."""
    floor = machine.floor(rng)
    looks: list[Speedup] = []
    while True:
        looks.append(machine.look(slowed, floor, rng))
        ruling = ruling_of(looks, rules)
        if ruling is not Ruling.UNDECIDED or len(looks) >= rules.looks:
            return ruling, len(looks)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=4000, help="of each kind")
    gates = parser.parse_args().gates
    print("| drift | floor, median | slowed by | slower | not slower | undecided | looks |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for machine in MACHINES:
        floors = sorted(machine.floor(random.Random(seed)) for seed in range(gates))
        for slowed in SLOWED:
            rng = random.Random(1)
            found = [gate(machine, slowed, Rules(), rng) for _ in range(gates)]
            shares = Counter(ruling for ruling, _ in found)
            cells = [shares[one] / gates for one in (Ruling.SLOWER, Ruling.NOT_SLOWER, Ruling.UNDECIDED)]
            looks = sum(count for _, count in found) / gates
            shown = " | ".join(f"{cell:.1%}" for cell in cells)
            print(f"| {machine.drift:.1%} | {floors[gates // 2]:.3f} | {slowed:.1%} | {shown} | {looks:.1f} |")


if __name__ == "__main__":
    main()
