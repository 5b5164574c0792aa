"""Profile a kernel after timing, if the job asks for it: which kernels take the time of a call, and what binds them.

Tools are tried in order, the one with hardware counters first. A tool that is absent, not permitted or fails is
noted, and the next is tried. The candidate runs in its sandbox as ever, in a process of its own. The results are
claims of that process: no verdict rests on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from runners.backends.base import Artefact
from runners.errors import CandidateFailure, InfraFailure
from runners.harness.devices.device import Device
from runners.harness.processes.participant import CandidateProcess, candidate_policy, thread_count
from runners.harness.processes.sandboxed_worker import enclose
from runners.harness.profiling import launches
from runners.harness.timing.sessions import Bench
from runners.problems.base import Case
from runners.profiling.base import Attached, Launched, ProfilerError, Seen, normalised
from runners.profiling.ncu import Ncu
from runners.profiling.perf import Perf
from runners.profiling.rocprofv3 import Rocprofv3
from runners.sandbox import SandboxError
from runners.targets import Target

PROFILE_S = 60.0
LOG_BYTES = 4 << 20
CALLS = 3
CPU_PROFILE_US = 300_000.0
MOST_CPU_CALLS = 1000
FAILURES = (ProfilerError, CandidateFailure, InfraFailure, SandboxError)
NOTE_CHARS = 300


@dataclass(frozen=True)
class Sight:
    """Ask for the profile of one case of a kernel on a device.

    `call_us` is how long a call took when it was timed. With `closely`, tools are used that run the process anew,
    which take 3 to 12 s; otherwise only what observes it as it runs.
    """

    bench: Bench
    device: Device
    target: Target
    artefact: Artefact
    case: Case
    arena_bytes: int
    call_us: float
    closely: bool = True


Look = Callable[[Sight], list[Seen]]


def looked_closer(sight: Sight) -> dict[str, Any]:
    """Return `normalised`, with the case and a note for every tool that could not be used; only notes if none could."""
    notes: list[str] = []
    for tool, look in LOOKS[sight.device.kind][0 if sight.closely else -1 :]:
        try:
            found = normalised(tool, look(sight))
        except FAILURES as reason:
            notes.append(f"{tool}: {reason}"[:NOTE_CHARS])
            continue
        if "bound" not in found:
            notes.append(f"{tool}: no shares of the ceilings without hardware counters and a probed bandwidth")
        return {"case": sight.case.name, **found, "notes": notes}
    return {"case": sight.case.name, "top": [], "notes": notes}


def _launched(profiler: Launched, sight: Sight) -> list[Seen]:
    """Run the candidate under a tool, once for each of its passes."""
    if reason := profiler.missing():
        raise ProfilerError(reason)
    outputs = [_output(profiler, number, sight) for number in range(profiler.passes)]
    return profiler.read(outputs, CALLS, sight.target)


def _output(profiler: Launched, number: int, sight: Sight) -> str:
    bench, artefact = sight.bench, sight.artefact
    limits = replace(bench.limits, log_bytes=LOG_BYTES)
    shown = (*artefact.shown, *bench.setups.paths, *profiler.shown)
    policy = candidate_policy(sight.device, limits, thread_count(), shown, artefact.env, scratch=artefact.scratch)
    policy = replace(policy, local_sockets=profiler.local_sockets)
    arena = bench.oracle.arena("profiled", sight.arena_bytes)
    try:
        under = enclose(artefact.kind, policy, around=partial(profiler.around, number))
        process = CandidateProcess(
            "profiled", artefact, bench.setups, arena, limits, thread_count(), bench.cancel, under
        )
    except BaseException:
        arena.close()
        raise
    try:
        _repeated(sight, process, CALLS)
        return process.ended(PROFILE_S)
    finally:
        process.close()
        bench.oracle.reset()


def _attached(profiler: Attached, sight: Sight) -> list[Seen]:
    """Run a tool beside the candidate, long enough to count something."""
    if reason := profiler.missing():
        raise ProfilerError(reason)
    process = sight.bench.candidate("profiled", sight.artefact, sight.arena_bytes)
    calls = max(CALLS, min(MOST_CPU_CALLS, round(CPU_PROFILE_US / max(1.0, sight.call_us))))
    try:
        process.prioritise()
        call = _repeated(sight, process, 1)
        with profiler.counting(process.pids) as printed:
            process.repeated(call, calls, PROFILE_S)
        return profiler.read(printed, calls, sight.target)
    finally:
        process.close()
        sight.bench.oracle.reset()


def _repeated(sight: Sight, process: CandidateProcess, calls: int) -> dict[str, Any]:
    """Make one call as in timing, so that everything is compiled, then the call alone."""
    call = launches.laid(sight.bench, process, sight.case)
    process.run([call], sight.bench.limits.call_s)
    process.repeated(call, calls, PROFILE_S)
    return call


def _by_torch(sight: Sight) -> list[Seen]:
    """Return what torch's profiler sees in the process: names and times, no counters."""
    seen = launches.kernels(sight.bench, sight.artefact, sight.case, sight.arena_bytes)
    if not seen:
        raise ProfilerError("saw no kernel")
    return seen


TORCH: tuple[str, Look] = ("torch.profiler", _by_torch)
LOOKS: dict[str, tuple[tuple[str, Look], ...]] = {
    "cuda": (("ncu", partial(_launched, Ncu())), TORCH),
    "hip": (("rocprofv3", partial(_launched, Rocprofv3())), TORCH),
    "cpu": (("perf", partial(_attached, Perf())),),
}
