"""Measure how fast a processor reads from each of its caches and from memory, all cores together."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from runners.backends.cpp import compiler
from runners.errors import InfraFailure
from runners.targets import Target

PROGRAM = Path(__file__).parents[2] / "profiling" / "bandwidth.cpp"
BUILD_S, RUN_S = 60.0, 120.0
# A thread's buffer as a share of its part of a cache: the rest is for the stack and for other processes.
FILLED = 0.5
# A working set that lies in memory is larger than the last cache by this factor, up to a size that any machine has.
BEYOND, MOST_BYTES = 4, 1 << 30


def measured_levels(target: Target) -> list[dict[str, Any]]:
    """Return the levels, nearest first: name, how many bytes all cores together keep there, bytes per second.

    Memory has no size. The caller holds the machine alone. Raises InfraFailure.
    """
    cores = len(os.sched_getaffinity(0))
    names = sorted(target.caches_bytes)
    held = {name: target.caches_bytes[name] * (1 if name == names[-1] else cores) for name in names}
    sizes = [int(FILLED * held[name] / cores) for name in names]
    sizes.append(min(MOST_BYTES, BEYOND * max(held.values(), default=64 << 20)) // cores)
    rates = _rates([size & ~63 for size in sizes])
    return [
        {"name": name, "bytes": held.get(name), "bandwidth": rate}
        for name, rate in zip([*names, "DRAM"], rates, strict=True)
    ]


def _rates(sizes: list[int]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "bandwidth"
        build = [compiler(), "-std=c++17", "-O3", "-march=native", "-pthread", str(PROGRAM), "-o", str(program)]
        for command, limit_s in ((build, BUILD_S), ([str(program), *map(str, sizes)], RUN_S)):
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
            if done.returncode:
                raise InfraFailure(f"the bandwidth probe failed: {done.stderr.strip()[-500:]}")
    return [float(line) for line in done.stdout.split()]
