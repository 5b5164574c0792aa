"""Estimate from static features what a unit of a kernel's work costs, by rules of the hardware, before it runs.

The estimate ranks variants of one kernel; it is no time. How often loops run is not in the code, so costs are divided
by the work that the same code does: its floating-point operations, else its stores. How many programs are launched
is known of Triton kernels, whose tile sizes change it, and multiplies the cost.

The rules, in cycles of a SIMD of CDNA (CDNA3 instruction set architecture guide; "AMD CDNA 3" white paper): a vector
instruction of 64 lanes takes four cycles on 16 lanes, a memory instruction one cycle for every 64-byte line and at
least four for every dword, LDS delivers 128 bytes a cycle and repeats for every bank conflict. A wait exposes the
latency of memory unless other waves fill it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

TRIPS = 32.0  # passes through a loop that the code does not tell
LATENCY = 500.0  # cycles from a load to its data, in the last-level cache
_CYCLES = {
    "vector": 4.0, "scalar": 1.0, "special": 16.0, "matrix": 32.0, "load": 8.0, "store": 8.0, "lds_load": 4.0,
    "lds_store": 4.0, "scalar_load": 4.0, "scratch": 32.0, "atomic": 64.0, "shuffle": 8.0, "barrier": 16.0,
    "branch": 8.0,
}  # fmt: skip
DESCRIPTORS = (
    "cost",
    "issue",
    "memory",
    "lds",
    "scratch",
    "waits",
    "branches",
    "lines",
    "scattered",
    "occupancy",
    "code",
)


def descriptors(figures: Mapping[str, float], programs: float = 1.0) -> dict[str, float]:
    """Return the figures on which variants of a kernel are compared, as natural logarithms, by name (DESCRIPTORS).

    `figures` are the static features, with the registers and occupancy of the build where they are known. `programs`
    is how many programs a kernel is taken to launch whose build does not tell (see `typical_programs`).
    """
    work = _work(figures)
    cycles = {kind: weight * _passes(figures, kind) / work for kind, weight in _CYCLES.items()}
    lines = max(1.0, figures.get("stride_lines", 1.0))
    cycles["load"] *= lines
    cycles["lds_load"] *= max(1.0, figures.get("lds_conflict_ways", 1.0))
    waits = _passes(figures, "wait") / work
    issue, occupancy = sum(cycles.values()), max(1.0, figures.get("occupancy", 1.0))
    # The waves of a SIMD take turns: it is busy with one while the others wait.
    cost = max(issue, (issue + LATENCY * waits) / occupancy) * max(1.0, figures.get("programs", programs))
    memory, lds = cycles["load"] + cycles["store"], cycles["lds_load"] + cycles["lds_store"]
    found = {
        "cost": cost, "issue": issue, "memory": memory, "lds": lds, "scratch": cycles["scratch"], "waits": waits,
        "branches": cycles["branch"], "lines": lines, "scattered": _scattered(figures), "occupancy": occupancy,
        "code": figures.get("instructions", 0.0) / 100,
    }  # fmt: skip
    return {name: math.log1p(100.0 * found[name]) for name in DESCRIPTORS}


def typical_programs(many: Sequence[Mapping[str, float]]) -> float:
    """Return the median number of programs that kernels launch, 1 where it is known of none.

    Kernels of one problem that are compared share it. A CUDA kernel, whose launch is not known, would otherwise seem a
    thousand times cheaper than a Triton kernel.
    """
    return median([one["programs"] for one in many if one.get("programs")] or [1.0])


def _passes(figures: Mapping[str, float], name: str) -> float:
    return figures.get(name, 0.0) + (TRIPS - 1) * figures.get(f"loop_{name}", 0.0)


def _work(figures: Mapping[str, float]) -> float:
    """Return the operations of a lane, or what it stores where it computes nothing in floating point."""
    arithmetic = _passes(figures, "flops") + 64 * _passes(figures, "matrix")
    return arithmetic or figures.get("store_bytes", 0.0) or 1.0


def _scattered(figures: Mapping[str, float]) -> float:
    accesses = sum(figures.get(name, 0.0) for name in ("contiguous", "strided", "broadcast", "scattered"))
    return figures.get("scattered", 0.0) / accesses if accesses else 0.0
