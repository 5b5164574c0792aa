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
from runners.harness.processes.sandboxed_worker import start_worker
from runners.harness.processes.work_queues import environment_for
from runners.harness.profiling import launches
from runners.harness.timing.sessions import Bench
from runners.problems.base import Case
from runners.profiling.base import Attached, Launched, ProfilerError, Seen, normalised
from runners.profiling.ncu import Ncu
from runners.profiling.perf import Perf
from runners.profiling.proc import Proc
from runners.profiling.rocprofv3 import Rocprofv3
from runners.sandbox import SandboxError
from runners.targets import Target

PROFILE_S = 60.0
# Profilers print their tables to standard output, which is otherwise capped to a log's size.
LOG_BYTES = 4 << 20
LEAST_CPU_CALLS = 3
# Long enough that the calls outweigh starting and stopping the counters.
CPU_PROFILE_US = 300_000.0
MOST_CPU_CALLS = 1000
FAILURES = (ProfilerError, CandidateFailure, InfraFailure, SandboxError)
NOTE_CHARS = 300


@dataclass(frozen=True)
class ProfilingRequest:
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


Profile = Callable[[ProfilingRequest], list[Seen]]


def profiled(request: ProfilingRequest) -> dict[str, Any]:
    """Return `normalised`, with the case and a note for every tool that could not be used; only notes if none could."""
    notes: list[str] = []
    # The last tool of each list works without starting the process anew; on a CPU all of them do.
    closely = request.closely or request.device.kind == "cpu"
    for tool, profile in TOOLS[request.device.kind][0 if closely else -1 :]:
        try:
            found = normalised(tool, profile(request))
        except FAILURES as reason:
            notes.append(f"{tool}: {reason}"[:NOTE_CHARS])
            continue
        if "bound" not in found:
            notes.append(f"{tool}: no shares of the ceilings without hardware counters and a probed bandwidth")
        return {"case": request.case.name, **found, "notes": notes}
    return {"case": request.case.name, "top": [], "notes": notes}


def _launched(profiler: Launched, request: ProfilingRequest) -> list[Seen]:
    """Run the candidate under a tool, once for each of its passes."""
    if reason := profiler.missing():
        raise ProfilerError(reason)
    outputs = [_output(profiler, number, request) for number in range(profiler.passes)]
    return profiler.read(outputs, profiler.calls, request.target)


def _output(profiler: Launched, number: int, request: ProfilingRequest) -> str:
    bench, artefact = request.bench, request.artefact
    limits = replace(bench.limits, log_bytes=LOG_BYTES)
    shown = (*artefact.shown, *bench.setups.paths, *profiler.shown)
    env = environment_for(artefact)
    policy = candidate_policy(request.device, limits, thread_count(), shown, env, scratch=artefact.scratch)
    policy = replace(policy, local_sockets=profiler.local_sockets)
    arena = bench.oracle.arena("profiled", request.arena_bytes)
    try:
        under = start_worker(artefact.kind, policy, around=partial(profiler.around, number))
        process = CandidateProcess(
            "profiled", artefact, bench.setups, arena, limits, thread_count(), bench.cancel, under
        )
    except BaseException:
        arena.close()
        raise
    try:
        _repeated(request, process, profiler.calls)
        return process.ended(PROFILE_S)
    finally:
        process.close()
        bench.oracle.reset()


def _attached(profiler: Attached, request: ProfilingRequest) -> list[Seen]:
    """Run a tool beside the candidate, long enough to count something."""
    if reason := profiler.missing():
        raise ProfilerError(reason)
    process = request.bench.candidate("profiled", request.artefact, request.arena_bytes)
    calls = max(LEAST_CPU_CALLS, min(MOST_CPU_CALLS, round(CPU_PROFILE_US / max(1.0, request.call_us))))
    try:
        process.prioritise()
        call = _repeated(request, process, 1)
        with profiler.counting(process.pids) as printed:
            process.repeated(call, calls, PROFILE_S)
        return profiler.read(printed, calls, request.target)
    finally:
        process.close()
        request.bench.oracle.reset()


def _repeated(request: ProfilingRequest, process: CandidateProcess, calls: int) -> dict[str, Any]:
    """Make one call as in timing, so that everything is compiled, then the call alone."""
    call = launches.laid(request.bench, process, request.case)
    process.run([call], request.bench.limits.call_s)
    process.repeated(call, calls, PROFILE_S)
    return call


def _by_torch(request: ProfilingRequest) -> list[Seen]:
    """Return what torch's profiler sees in the process: names and times, no counters."""
    seen = launches.kernels(request.bench, request.artefact, request.case, request.arena_bytes)
    if not seen:
        raise ProfilerError("saw no kernel")
    return seen


TORCH: tuple[str, Profile] = ("torch.profiler", _by_torch)
TOOLS: dict[str, tuple[tuple[str, Profile], ...]] = {
    "cuda": (("ncu", partial(_launched, Ncu())), TORCH),
    "hip": (("rocprofv3", partial(_launched, Rocprofv3())), TORCH),
    "cpu": (("perf", partial(_attached, Perf())), ("proc", partial(_attached, Proc()))),
}
