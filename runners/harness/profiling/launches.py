"""Measure launches on a GPU after timing, for people and agents.

The figures are the least cost of a launch, the time of a call that is replayed from a CUDA graph, and the kernels
that take the time. They are claims of the candidate's own process: no verdict rests on them, and failures are left
out.
"""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import Any

from runners.backends.base import Artefact
from runners.errors import BASELINE, CandidateFailure, InfraFailure
from runners.harness.memory import staging
from runners.harness.processes.participant import CandidateProcess
from runners.harness.timing.sessions import Bench
from runners.problems.base import Case
from runners.profiling.base import Seen

PROFILE_S = 60.0


def launches(bench: Bench, sides: list[CandidateProcess]) -> dict[str, Any]:
    """Return `floor_us` and, by case and side, the time of a call that is replayed from a graph in µs.

    `floor_us` is the least time between two events around one tiny launch. A side that can't be captured is left out.
    """
    floor = [side.replies("floor", {}, bench.limits.call_s) for side in sides if side.name == BASELINE]
    answering = list(sides)
    cases = {case.name: _replayed(bench, answering, case) for case in bench.cases}
    found: dict[str, Any] = {"graph_us": {name: times for name, times in cases.items() if times}}
    if floor and floor[0]:
        found["floor_us"] = round(median(floor[0]), 2)
    return found


def _replayed(bench: Bench, sides: list[CandidateProcess], case: Case) -> dict[str, float]:
    """Return the median time of a replay by side in µs. Sides that no longer answer are removed from `sides`."""
    times = {}
    for side in list(sides):
        _release(sides)
        if side not in sides:
            continue
        with suppress(CandidateFailure, InfraFailure):
            call = laid(bench, side, case)
            if taken := side.replies("replay", {"call": call}, bench.limits.call_s * 2):
                times[side.name] = round(median(taken), 3)
    bench.oracle.reset()
    return times


def _release(sides: list[CandidateProcess]) -> None:
    """Have all sides give back unused memory before one captures a graph, which has memory of its own.

    Sides that no longer answer are removed from `sides`.
    """
    for side in list(sides):
        try:
            side.release()
        except (CandidateFailure, InfraFailure):
            sides.remove(side)


def laid(bench: Bench, side: CandidateProcess, case: Case) -> dict[str, Any]:
    """Lay out a fresh call of that case in the side's arena, with the side ready for it."""
    content = bench.oracle.make(case, case.distributions[0])[0]
    side.set_case(staging.case_layout(bench.problem, content), case)
    return staging.stage(side.arena, [content], bench.rng)[0].message


def kernels(bench: Bench, artefact: Artefact, case: Case, arena_bytes: int) -> list[Seen]:
    """Return the kernels in which a call of the case spends its time, by torch's profiler, in a process of their own.

    The list is empty if nothing can be seen.
    """
    with suppress(CandidateFailure, InfraFailure):
        process: CandidateProcess = bench.start("profiled", artefact, arena_bytes, with_torch=True)()
        try:
            call = laid(bench, process, case)
            process.run([call], bench.limits.call_s)
            return [kernel for raw in process.kernels(call, PROFILE_S) if (kernel := _kernel(raw))]
        finally:
            process.close()
            bench.oracle.reset()
    return []


def _kernel(raw: Any) -> Seen | None:
    """Parse one kernel of a process's answer, or return None if it is none."""
    match raw:
        case [str(name), int(launched), float(time_us)] if 0 < launched < 10**9 and 0 <= time_us < 1e9:
            return Seen(name, launched, time_us)
    return None
