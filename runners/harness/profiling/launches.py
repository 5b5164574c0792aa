"""What is looked at on a GPU when timing is over, for people and agents: what a launch costs at least, what a call
takes when it is replayed from a CUDA graph, and which kernels take the time. Claims of the candidate's own process:
no verdict rests on them, and whatever fails here is left out.
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
    """`floor_us`, the least that lies between two events around one tiny launch, and by case and side what a call takes
    when it is replayed from a graph; a side that can't be captured is left out."""
    floor = [side.replies("floor", {}, bench.limits.call_s) for side in sides if side.name == BASELINE]
    cases = {case.name: _replayed(bench, sides, case) for case in bench.cases}
    found: dict[str, Any] = {"graph_us": {name: times for name, times in cases.items() if times}}
    if floor and floor[0]:
        found["floor_us"] = round(median(floor[0]), 2)
    return found


def _replayed(bench: Bench, sides: list[CandidateProcess], case: Case) -> dict[str, float]:
    """Median time of a replay by side, µs."""
    times = {}
    for side in sides:
        with suppress(CandidateFailure, InfraFailure):
            call = laid(bench, side, case)
            if taken := side.replies("replay", {"call": call}, bench.limits.call_s * 2):
                times[side.name] = round(median(taken), 3)
    bench.oracle.reset()
    return times


def laid(bench: Bench, side: CandidateProcess, case: Case) -> dict[str, Any]:
    """A fresh call of that case in the side's arena, and the side ready for it."""
    content = bench.oracle.make(case, case.distributions[0])[0]
    side.set_case(staging.case_layout(bench.problem, content), case)
    return staging.stage(side.arena, [content], bench.rng)[0].message


def kernels(bench: Bench, artefact: Artefact, case: Case, arena_bytes: int) -> list[Seen]:
    """The kernels that a call of the case spends its time in, by torch's profiler, in a process of their own. Empty
    where nothing can be seen."""
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
    """One kernel of a process's answer, or None where it is none."""
    match raw:
        case [str(name), int(launched), float(time_us)] if launched > 0 and 0 <= time_us < 1e9:
            return Seen(name, launched, time_us)
    return None
