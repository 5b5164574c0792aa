"""Measured times against the target's ceilings, in a form that agents can read.

For each timed case: achieved FLOP and byte rates as shares of the ceiling, and what binds it. A case that reaches
neither a third of the bandwidth nor of the arithmetic is bound by latency: too little in flight, launches, or work
that the counts do not know (Williams, Waterman, Patterson, "Roofline", CACM 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runners.problems.base import Work
from runners.targets import FACTOR_DTYPES, Target, ceilings

LATENCY_SHARE = 1 / 3


def summary(target: Target, work: Mapping[str, Work | None], times_us: Mapping[str, float]) -> dict[str, Any]:
    """`{"bound": ..., "cases": {name: {...}}}`; the bound is that of the case with the longest time. Empty where
    nothing is known of the work."""
    cases = {
        name: case
        for name, time_us in times_us.items()
        if (case := _case(target, work.get(name), time_us)) is not None
    }
    if not cases:
        return {}
    longest = max(cases, key=lambda name: times_us[name])
    return {"bound": cases[longest]["bound"], "cases": cases}


def _case(target: Target, work: Work | None, time_us: float) -> dict[str, Any] | None:
    if work is None or time_us <= 0:
        return None
    compute, memory = _compute_share(target, work, time_us), _memory_share(target, work, time_us)
    return {
        "bound": _bound(compute, memory),
        "time_us": time_us,
        "compute_share": round(compute, 4),
        "memory_share": round(memory, 4),
        "bytes_per_s": work.bytes / time_us * 1e6,
        "flop_per_s": sum(work.flops.values()) / time_us * 1e6,
    }


def _bound(compute: float, memory: float) -> str:
    if max(compute, memory) < LATENCY_SHARE:
        return "latency"
    return "compute" if compute > memory else "memory"


def _compute_share(target: Target, work: Work, time_us: float) -> float:
    measured = ceilings(target.key).matmul_flops
    named = {FACTOR_DTYPES.get(dtype, dtype): count for dtype, count in work.flops.items()}
    rates = {dtype: measured.get(dtype) or target.peak_flops.get(dtype) for dtype in named}
    return max(
        (count / rate * 1e6 / time_us for dtype, count in named.items() if (rate := rates[dtype])), default=0.0
    )


def _memory_share(target: Target, work: Work, time_us: float) -> float:
    bandwidth = ceilings(target.key).copy_bandwidth or target.bandwidth
    return work.bytes / bandwidth * 1e6 / time_us if bandwidth else 0.0
