"""Measured times against the target's ceilings, in a form that agents can read.

For each timed case: achieved FLOP and byte rates, from the problem's own counts, as shares of the ceiling, and what
binds it. What a profiler counted stands beside it (`runners.harness.profiling.request`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runners.problems.base import Work
from runners.profiling.base import WHOLE_PROCESS, bound_by
from runners.targets import FACTOR_DTYPES, Target, ceilings

# How the names of a profiler's own figures end, by which they are put into words.
PERCENT = "_percent"
# Names of templates take hundreds of characters, and what was counted stands behind them.
NAME_CHARS = 80
COUNTED = ("_a_call", "cores_busy")


def summary(target: Target, work: Mapping[str, Work | None], times_us: Mapping[str, float]) -> dict[str, Any]:
    """Return `{"bound": ..., "cases": {name: {...}}}`, or nothing if the work of no case is known.

    The bound is that of the case with the longest time.
    """
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
    level = ceilings(target.key).level_for(work.bytes)
    if target.family == "cpu" and level is None:
        # Nothing is measured with which the times could be compared.
        return None
    compute, memory = _compute_share(target, work, time_us), _memory_share(target, work, time_us)
    return {
        **({"level": level.name} if level is not None else {}),
        "bound": bound_by(compute, memory),
        "time_us": time_us,
        "compute_share": round(compute, 4),
        "memory_share": round(memory, 4),
        "bytes_per_s": work.bytes / time_us * 1e6,
        "flop_per_s": sum(work.flops.values()) / time_us * 1e6,
    }


def _compute_share(target: Target, work: Work, time_us: float) -> float:
    measured = ceilings(target.key).matmul_flops
    named = {FACTOR_DTYPES.get(dtype, dtype): count for dtype, count in work.flops.items()}
    rates = {dtype: measured.get(dtype) or target.peak_flops.get(dtype) for dtype in named}
    return max(
        (count / rate * 1e6 / time_us for dtype, count in named.items() if (rate := rates[dtype])), default=0.0
    )


def _memory_share(target: Target, work: Work, time_us: float) -> float:
    found = ceilings(target.key)
    level = found.level_for(work.bytes)
    bandwidth = level.bandwidth if level is not None else found.bandwidth or target.bandwidth
    return work.bytes / bandwidth * 1e6 / time_us if bandwidth else 0.0


def in_words(profile: Mapping[str, Any]) -> list[str]:
    """Describe a result's profile in lines for a prompt or a page.

    The lines say what binds each case, what launching costs, and which kernels take the time; their names are a
    hostile process's words. Anything that does not have the form that the harness writes is left out.
    """
    cases, launch, kernels = (_mapping(profile, name) for name in ("cases", "launch", "kernels"))
    lines = [_case_words(name, case) for name, case in cases.items() if isinstance(case, Mapping)]
    lines += [_graph_words(name, times) for name, times in _mapping(launch, "graph_us").items()]
    if isinstance(floor := launch.get("floor_us"), float | int):
        lines.append(f"the least between two events around one launch on this device: {floor:g} µs")
    lines += [_kernel_words(kernel, str(kernels.get("tool", ""))) for kernel in kernels.get("top") or []]
    return [line for line in lines if line]


def notes_in(profile: Mapping[str, Any]) -> list[str]:
    """Return at most ten notes on what could not be profiled and why; a hostile process may have influenced them."""
    notes = _mapping(profile, "kernels").get("notes")
    return [str(note) for note in notes[:10]] if isinstance(notes, list) else []


def _case_words(name: str, case: Mapping[str, Any]) -> str:
    if not {"bound", "compute_share", "memory_share"} <= case.keys():
        return ""
    level = f" of {plain_level}" if (plain_level := str(case.get("level", ""))[:16]) else ""
    shares = (
        f"{case['compute_share']:.0%} of the arithmetic ceiling, {case['memory_share']:.0%} of the bandwidth{level}"
    )
    return f"{name}: bound by {case['bound']}; {shares}"


def _graph_words(name: str, times: object) -> str:
    ours = times.get("candidate") if isinstance(times, Mapping) else None
    return f"{name}: {ours:g} µs when replayed from a CUDA graph" if isinstance(ours, float | int) else ""


def _kernel_words(kernel: object, tool: str) -> str:
    if not isinstance(kernel, Mapping) or not {"time_us", "launches", "name"} <= kernel.keys():
        return ""
    line = f"{kernel['time_us']:.4g} µs a call{_launches_words(kernel)}"
    if not {"bound", "compute_share", "memory_share"} <= kernel.keys():
        return f"{line}{_details(kernel)}"
    shares = f"{kernel['compute_share']:.0%} of the arithmetic, {kernel['memory_share']:.0%} of the memory"
    return f"{line}: bound by {kernel['bound']}, {shares} by {tool}'s counters{_details(kernel)}"


def _launches_words(kernel: Mapping[str, Any]) -> str:
    launches, name = kernel["launches"], kernel["name"]
    if name == WHOLE_PROCESS:
        return ", repeated on the same data"  # which timing never does, so that its calls find colder caches
    shown = name if len(str(name)) <= NAME_CHARS else f"{str(name)[: NAME_CHARS - 1]}…"
    return f" in {launches} {'launch' if launches == 1 else 'launches'} of {shown}"


def _details(kernel: Mapping[str, Any]) -> str:
    figures = [_figure(name, value) for name, value in _mapping(kernel, "details").items()]
    return f" ({', '.join(figures)})" if figures else ""


def _figure(name: str, value: float) -> str:
    words = name.replace("_", " ")
    if name.endswith(PERCENT):
        return f"{words.removesuffix(' percent')} {value:.3g} %"
    # A count belongs before what it counts: 0.07 context switches a call.
    return f"{value:.3g} {words}" if name.endswith(COUNTED) else f"{words} {value:.4g}"


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}
