"""Name what limits a kernel by what was measured of it: times, profilers' counters, the compiler's report.

The words are those of `optimizer.knowledge.library.BOTTLENECKS`. A profile was printed beside a hostile process: what
does not have the form that the harness writes is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.queries.timing import case_notes
from runners.job import Flag, JobResult
from runners.profiling.base import WHOLE_PROCESS

# An SM or compute unit that holds fewer warps or wavefronts than this hides little latency by switching.
LOW_OCCUPANCY = 4
# Share of shared-memory accesses repeated for bank conflicts from which another layout is worth it.
CONFLICTS_PERCENT = 10
# Two lanes in one bank are common outside hot loops, of which a kernel's worst access says nothing.
CONFLICT_WAYS = 4
# Reasons for which warps wait where instructions for shared memory queue up.
_SHARED_STALLS = {"stalled_short_scoreboard", "stalled_mio_throttle"}
_STALLED = "stalled_"
# Launches a call, and their mean time on the device, at which what lies between them counts.
MANY_LAUNCHES, SHORT_LAUNCH_US = 8, 10.0
# Share of the warps that a device holds, in use while neither ceiling is reached, below which some units are idle.
FEW_WARPS_PERCENT = 25
_WARPS = ("warps_active_percent", "occupancy_percent")
# Share of a CPU's threads below which some of them have no work.
FEW_CORES = 0.75


def bottlenecks_in(result: JobResult) -> frozenset[str]:
    """Return the limits that a result shows."""
    longest = next(iter(_kernels(result)), {})
    found = {
        "registers": _spills(result),
        "occupancy": _holds_few_warps(result),
        "shared memory": _waits_for_shared_memory(longest) or _has_conflicts(result),
        "launch": _waits_for_the_host(result) or _launches_much(result),
        "load balance": _leaves_units_idle(longest) or _leaves_cores_idle(longest, result),
    }
    return frozenset({name for name, holds in found.items() if holds} | _bounds(result, longest))


def _bounds(result: JobResult, longest: Mapping[str, Any]) -> set[str]:
    """Return what the profile says outright: compute, memory or latency."""
    counted = result.profile.get("kernels")
    named = (
        result.profile.get("bound"),
        counted.get("bound") if isinstance(counted, Mapping) else None,
        longest.get("bound"),
    )
    return {name for name in named if isinstance(name, str) and name}


def _kernels(result: JobResult) -> list[Mapping[str, Any]]:
    """Return the kernels that a profiler saw, the longest first."""
    counted = result.profile.get("kernels")
    top = counted.get("top") if isinstance(counted, Mapping) else None
    return [one for one in top if isinstance(one, Mapping)] if isinstance(top, list) else []


def _details(kernel: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of the profiler's own."""
    found = kernel.get("details")
    known = found.items() if isinstance(found, Mapping) else ()
    return {str(name): float(value) for name, value in known if isinstance(value, int | float)}


def _spills(result: JobResult) -> bool:
    reports = result.build.kernels if result.build else []
    return any(report.vgpr_spills or report.scratch_bytes for report in reports)


def _holds_few_warps(result: JobResult) -> bool:
    reports = result.build.kernels if result.build else []
    return any(report.occupancy is not None and report.occupancy < LOW_OCCUPANCY for report in reports)


def _has_conflicts(result: JobResult) -> bool:
    reports = result.build.kernels if result.build else []
    return any(report.features.get("lds_conflict_ways", 0.0) >= CONFLICT_WAYS for report in reports)


def _waits_for_shared_memory(kernel: Mapping[str, Any]) -> bool:
    """Return whether bank conflicts are many, or most warps wait for shared memory."""
    details = _details(kernel)
    stalls = {name: value for name, value in details.items() if name.startswith(_STALLED)}
    longest = max(stalls, key=lambda name: stalls[name], default="")
    return details.get("bank_conflict_percent", 0.0) >= CONFLICTS_PERCENT or longest in _SHARED_STALLS


def _waits_for_the_host(result: JobResult) -> bool:
    """Return whether calls take much longer with the host than on the device alone, or were flagged so."""
    flags = {*result.flags, *(note.flag for case in result.cases for note in case_notes(case))}
    return bool(flags & {Flag.LAUNCH_BOUND, Flag.HOST_BOUND})


def _launches_much(result: JobResult) -> bool:
    """Return whether a call consists of many short launches."""
    seen = [
        (one.get("launches"), one.get("time_us")) for one in _kernels(result) if one.get("name") != WHOLE_PROCESS
    ]
    known = [(count, us) for count, us in seen if isinstance(count, int) and isinstance(us, int | float)]
    launches = sum(count for count, _ in known)
    return launches >= MANY_LAUNCHES and sum(us for _, us in known) <= SHORT_LAUNCH_US * launches


def _leaves_units_idle(kernel: Mapping[str, Any]) -> bool:
    """Return whether few warps are active while neither ceiling is reached: few blocks, or blocks of unequal length.

    A matrix product with few warps that reaches a ceiling is as it should be.
    """
    details = _details(kernel)
    active = min((details[name] for name in _WARPS if name in details), default=100.0)
    return active < FEW_WARPS_PERCENT and kernel.get("bound") == "latency"


def _leaves_cores_idle(kernel: Mapping[str, Any], result: JobResult) -> bool:
    """Return whether a kernel on a CPU keeps much less busy than the threads that it may use."""
    threads, busy = result.environment.get("threads"), _details(kernel).get("cores_busy")
    return isinstance(threads, int) and threads > 1 and busy is not None and busy < FEW_CORES * threads
