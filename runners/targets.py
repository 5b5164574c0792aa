"""Hardware targets: what a device can do at most, and where the figures come from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runners.problems.base import Work


@dataclass(frozen=True)
class Target:
    """One kind of device. `peak_flops` per second by dtype of the arithmetic, `bandwidth` in bytes per second; both
    are upper bounds, since a time under the roofline counts as suspect. `sources` says where they come from."""

    key: str
    title: str
    family: str
    peak_flops: dict[str, float] = field(default_factory=dict)
    bandwidth: float | None = None
    caches_bytes: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    def roofline_us(self, work: Work | None) -> float | None:
        """Least time that physics allows for that work, in µs; None where nothing is known (Williams, Waterman,
        Patterson, "Roofline", CACM 2009)."""
        if work is None:
            return None
        bounds = [flops / self.peak_flops[dtype] for dtype, flops in work.flops.items() if dtype in self.peak_flops]
        if self.bandwidth:
            bounds.append(work.bytes / self.bandwidth)
        return max(bounds) * 1e6 if bounds else None


class UnknownTarget(KeyError):
    """No such target; the message lists those there are."""

    def __str__(self) -> str:
        return str(self.args[0])


def target(key: str) -> Target:
    """The target of that key. Raises UnknownTarget."""
    if key not in TARGETS:
        raise UnknownTarget(f"{key} is not a target; known are {', '.join(sorted(TARGETS))}")
    return TARGETS[key]


FMA_UNITS, FMA_FLOPS = 2, 2
LOAD_PORTS = 2
FASTEST_CLOCK_HZ = 5.5e9


def _this_cpu() -> Target:
    """Bounds for the processor we run on: two fused multiply-adds and two full-width loads a cycle and core, at the
    processor's highest clock (5.5 GHz where it does not say). Data may lie in the first cache, so the bandwidth is
    that of the load ports, not of memory."""
    model, flags = _cpuinfo()
    width_bytes = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    rate = len(os.sched_getaffinity(0)) * _clock_hz()
    per_cycle = width_bytes * FMA_UNITS * FMA_FLOPS
    flops = {"float64": rate * per_cycle / 8, "float32": rate * per_cycle / 4}
    flops |= {"bfloat16": flops["float32"] * 2, "float16": flops["float32"] * 2}
    source = "two FMA units and two load ports of full vector width a core, at the highest clock"
    return Target("cpu", model, "cpu", flops, rate * width_bytes * LOAD_PORTS, _caches(), (source,))


def _cpuinfo() -> tuple[str, set[str]]:
    text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    return fields.get("model name", "CPU").strip(), set(fields.get("flags", fields.get("Features", "")).split())


def _clock_hz() -> float:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    try:
        return float(path.read_text()) * 1e3
    except (OSError, ValueError):
        return FASTEST_CLOCK_HZ


def _caches() -> dict[str, int]:
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) << 10
    return found


@cache
def _targets() -> dict[str, Target]:
    return {"cpu": _this_cpu()}


TARGETS = _targets()
