"""Control a process that computes on an arena in a sandbox: candidate, parent or baseline, all of the same kind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from runners.backends.base import Artefact
from runners.candidate.channel import ChannelClosed, ChannelError, ChannelTimeout
from runners.candidate.gate import GATE_BYTES
from runners.errors import CandidateFailure, InfraFailure
from runners.harness.devices.device import Device, device_of
from runners.harness.memory.arena import Arena
from runners.harness.memory.contents import Setups
from runners.harness.memory.shared_memory import SharedMemory
from runners.harness.processes import compilers
from runners.harness.processes.peer import Late, Refused
from runners.harness.processes.preloading import PROGRAM, modules_for
from runners.harness.processes.priority import pin_tree, raise_tree
from runners.harness.processes.sandboxed_worker import SandboxedWorker, start_worker
from runners.harness.processes.work_queues import environment_for
from runners.job import Limits, Status
from runners.problems.base import Case
from runners.sandbox import Completed, KillReason, ResourceLimits, SandboxPolicy, python_paths
from runners.sandbox.meter import process_tree

# This includes importing torch where programs are executed, by several processes at the same time.
START_S = 60.0
# How long a process has to begin waiting for its device before the device is released.
SETTLE_S = 1e-4
# How long a call may take to be enqueued before it is taken for one that waits for the device.
HOLD_S = 0.15
# No request may take so long (11 days); a longer time is no measurement, and too large a one is no float.
MOST_NS = 10**15
# The word that the device waits for, in the machine's byte order (x86-64 and aarch64 are little-endian).
OPEN = b"\1\0\0\0"
# Python's, torch's and our driver's class.
OUT_OF_MEMORY_KINDS = ("MemoryError", "OutOfMemoryError")


@dataclass(frozen=True)
class RequestTimes:
    """Hold the times of one request in µs.

    `inside_us` are times by the process's own clock, and therefore claims: one for each call, or for a loop the first
    call and all others together. `outside_us` is the referee's time around the request. For held calls, per call:
    `busy_us` is how long the device stayed busy after its last event, and `enqueue_us` what the host took to enqueue
    it. `held` says that the device was held until each whole call was enqueued.
    """

    inside_us: list[float]
    outside_us: float
    busy_us: list[float] = field(default_factory=list)
    enqueue_us: list[float] = field(default_factory=list)
    held: bool = False


class HeldCall(NamedTuple):
    """Hold the times of one call in µs as `RequestTimes` does, and whether the device was held until all of it was
    enqueued."""

    inside_us: float
    outside_us: float
    busy_us: float
    enqueue_us: float
    held: bool


class CandidateProcess:
    """Control one side of a comparison: an artefact loaded in a sandbox. Its faults become CandidateFailures."""

    def __init__(
        self,
        name: str,
        artefact: Artefact,
        setups: Setups,
        arena: Arena,
        limits: Limits,
        threads: int,
        cancel: Callable[[], bool] | None,
        worker: SandboxedWorker | None = None,
        build_s: float | None = None,
    ) -> None:
        device = device_of(arena.device)
        if worker is None:
            shown = (*artefact.shown, *setups.paths)
            host_bytes = 0 if arena.device else arena.size_bytes
            env = environment_for(artefact)
            policy = candidate_policy(device, limits, threads, shown, env, host_bytes, artefact.scratch)
            worker = start_worker(artefact.kind, policy, modules_for(device))
        self.name, self.arena, self.overwrites = name, arena, False
        self._peer, self._native = worker.peer, artefact.is_library
        self._peer.cancel = cancel
        self._limits, self._setups, self._worker = limits, setups, worker
        self._process = worker.process
        self.level = self._process.confinement
        self._gate = None if arena.device is None else SharedMemory("gate", GATE_BYTES)
        try:
            with self._awake():
                hello: dict[str, Any] = {"op": "hello", "kind": artefact.kind, "symbol": artefact.symbol}
                hello |= {
                    "device": arena.device,
                    "building": build_s is not None,
                    **worker.placed(artefact, setups),
                }
                self._ask(hello, build_s or START_S, self._descriptors)
        except BaseException as error:
            self.close()
            if isinstance(error, CandidateFailure):
                # Nobody gets this process to ask, and the result says how everything that ran was confined.
                error.level = self.level
                if error.status is Status.TIMEOUT:
                    error.reason = f"was not loaded: {error.reason}"
            raise

    @property
    def _descriptors(self) -> list[int]:
        return [self.arena.descriptor, *([self._gate.descriptor] if self._gate else [])]

    def set_case(self, layout: dict[str, Any], case: Case, timeout_s: float = START_S) -> None:
        """Tell the process the layout of the coming calls, which belong to that case. Raises CandidateFailure."""
        with self._awake():
            self._ask({"op": "case", "case": {**layout, **self._of(case)}}, timeout_s)

    def run(self, calls: list[dict[str, Any]], timeout_s: float) -> RequestTimes:
        """Make the calls in order and bring the last one's outputs into the arena. Raises CandidateFailure.

        The referee's clock runs from the process's sign that it is awake until it stands still, so that waking is not
        counted and work after the answer is.
        """
        return self._clocked({"op": "run", "calls": calls}, timeout_s, len(calls))

    def run_steadily(
        self, calls: list[dict[str, Any]], timeout_s: float, warm_us: float = 0.0, repeats: int = 0
    ) -> RequestTimes:
        """Make the calls in a loop, as a user does, after repeating the first for `warm_us`. Raises CandidateFailure.

        A call that is alone is repeated `repeats` times instead of the others. `inside_us` has two times: of
        everything before the loop, and of all others together (0 if there are none).
        """
        question = {"op": "steady", "calls": calls, "warm_ns": round(1e3 * warm_us), "repeats": repeats}
        return self._clocked(question, timeout_s, 2)

    def _clocked(self, question: dict[str, Any], timeout_s: float, times: int) -> RequestTimes:
        self._wake()
        ready = self._ask({"op": "ready", "calls": len(question["calls"])}, START_S)
        self.overwrites = ready.get("overwrites") is True
        started = time.perf_counter_ns()
        answer = self._ask(question, timeout_s)
        outside_us = (self._hold() - started) / 1e3
        return RequestTimes(self._times(answer, "inside_ns", times), outside_us)

    def run_held(self, calls: list[dict[str, Any]], timeout_s: float, patience_s: float = HOLD_S) -> RequestTimes:
        """Make the calls one by one on a device that is held until each is enqueued. Raises CandidateFailure.

        The referee opens the gate after the process has had SETTLE_S to begin waiting for its device. Its clock runs
        from there until the call's answer, and contains neither the host's time for enqueueing nor the process's
        waking, which a long call would hide and a short one would not. A call that is not enqueued within `patience_s`
        waits for the device inside, or fills its queue: the gate is opened nevertheless, and `held` is false.

        After a failure the process must not be asked again: an answer of it may wait to be read.
        """
        if self._gate is None:
            raise ValueError("only a GPU can be held")
        self._wake()
        self._ask({"op": "lay", "calls": calls}, timeout_s)
        try:
            made = [self._held_call(self._gate, number, timeout_s, patience_s) for number in range(len(calls))]
        except BaseException:
            self._gate.write(0, OPEN)  # or the device would wait on, and others with it
            raise
        self._hold()
        return RequestTimes(
            [call.inside_us for call in made],
            sum(call.outside_us for call in made),
            [call.busy_us for call in made],
            [call.enqueue_us for call in made],
            held=all(call.held for call in made),
        )

    def _held_call(self, gate: SharedMemory, number: int, timeout_s: float, patience_s: float) -> HeldCall:
        opened_ns = 0

        def open_gate() -> None:
            nonlocal opened_ns
            opened_ns = opened_ns or time.perf_counter_ns()
            gate.write(0, OPEN)

        arming, reaching = (self._posed({"op": op, "number": number}) for op in ("arm", "reach"))
        # A call that synchronises inside never returns while the device is held, so a late answer opens the gate.
        armed = self._heard(arming, timeout_s, Late(patience_s, open_gate))
        held = not opened_ns
        if held:
            time.sleep(SETTLE_S)
            if not self._peer.silent:
                self._heard(reaching, timeout_s)  # which raises what is wrong, if the process has failed
                raise self._failure(
                    Status.SUSPECT, "said that a call was done before the device was released for it"
                )
            open_gate()
        answer = self._heard(reaching, timeout_s)
        outside_us = (time.perf_counter_ns() - opened_ns) / 1e3
        inside_us, busy_us = (self._times(answer, name, 1)[0] for name in ("inside_ns", "busy_ns"))
        enqueue_us = self._times({"ns": [armed.get("enqueue_ns")]}, "ns", 1)[0]
        return HeldCall(inside_us, outside_us, busy_us, enqueue_us, held)

    def pack(self, memory: SharedMemory, timeout_s: float) -> None:
        """Have the process write to that memory what its compilers left. Raises CandidateFailure."""
        with self._awake():
            self._ask({"op": "pack", "most_bytes": memory.size_bytes}, timeout_s, [memory.descriptor])

    def release(self) -> int:
        """Have the process give back the device memory that it keeps for later calls.

        Return the most bytes that it held so far, as it claims; 0 if it says nothing. What a native kernel keeps is not
        known, and its process is left alone. Raises CandidateFailure.
        """
        if self._native:
            return 0
        with self._awake():
            held = self._ask({"op": "release"}, START_S).get("held_bytes")
        return held if type(held) is int and held > 0 else 0

    def replies(self, op: str, details: dict[str, Any], timeout_s: float) -> list[float]:
        """Return times in µs for a profiling operation (`floor`, `replay`), as claimed by the process; empty if it
        fails."""
        with contextlib.suppress(CandidateFailure, InfraFailure), self._awake():
            times = self._ask({"op": op, **details}, timeout_s).get(f"{op}_ns")
            if isinstance(times, list) and all(type(t) is int and 0 < t <= MOST_NS for t in times):
                return [t / 1e3 for t in times]
        return []

    @contextlib.contextmanager
    def _awake(self) -> Iterator[None]:
        """Let the process run for a question. After a failure it is not stopped, since it must be able to end."""
        self._wake()
        yield
        self._hold()

    def _wake(self) -> None:
        self._process.resume()

    def _hold(self) -> int:
        """Stop the process, and return when it stood (time.perf_counter_ns).

        A thread or child that goes on after the answer then neither finishes an output nor takes the processor from
        another side that is timed.
        """
        return self._process.pause()

    def _times(self, answer: dict[str, Any], name: str, count: int) -> list[float]:
        times = answer.get(name)
        if not isinstance(times, list) or len(times) != count or not all(map(_is_time, times)):
            # Answers come from a hostile process: types are checked exactly, because True would pass as an integer.
            raise self._failure(Status.CRASHED, "broke the protocol: an answer without its times")
        return [t / 1e3 for t in times]

    def _of(self, case: Case) -> dict[str, Any]:
        """Return the name of the case's setup. The process learns neither sizes nor anything else that it does not
        need."""
        name = self._setups.names.get(case.name)
        return {} if name is None else {"setup": name}

    def store(self, timeout_s: float) -> None:
        """Bring the outputs of all but the last call into the arena. Native kernels have written them there."""
        if not self._native:
            with self._awake():
                self._ask({"op": "store"}, timeout_s)

    def kernels(self, call: dict[str, Any], timeout_s: float) -> list[Any]:
        """Return what the process claims that a call launches, in whatever form. Raises CandidateFailure."""
        with self._awake():
            found = self._ask({"op": "kernels", "call": call}, timeout_s).get("kernels")
        return found if isinstance(found, list) else []

    @property
    def pids(self) -> list[int]:
        """Return every process in the sandbox, for a profiler that counts from outside."""
        return process_tree(self._process.pid)

    def repeated(self, call: dict[str, Any], count: int, timeout_s: float) -> None:
        """Repeat one call and nothing else, for a profiler. Raises CandidateFailure."""
        with self._awake():
            self._ask({"op": "repeated", "call": call, "count": count}, timeout_s)

    def ended(self, timeout_s: float) -> str:
        """Let the process end by itself, and return what it and a profiler around it printed. Raises
        CandidateFailure."""
        self._wake()
        self._peer.close()
        completed = self._process.wait(timeout_s)
        if completed is None:
            raise CandidateFailure(Status.TIMEOUT, f"did not end within {timeout_s:g} s")
        return f"{completed.stdout}\n{completed.stderr}"

    def prioritise(self) -> None:
        """Raise the priority of everything in the sandbox."""
        raise_tree(self._process.pid)

    def pin(self, processors: set[int]) -> None:
        """Confine everything in the sandbox to some of the processors."""
        pin_tree(self._process.pid, processors)

    def _ask(
        self,
        question: dict[str, Any],
        timeout_s: float,
        descriptors: Sequence[int] = (),
        late: Late | None = None,
    ) -> dict[str, Any]:
        """Ask the process. Raises CandidateFailure of this side for whatever goes wrong there."""
        return self._heard(self._posed(question, descriptors), timeout_s, late)

    def _posed(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> str:
        """Send a question, and return its nonce for `_heard`. Raises CandidateFailure."""
        try:
            return self._peer.pose(question, descriptors)
        except ChannelClosed:
            raise self._ended() from None

    def _heard(self, nonce: str, timeout_s: float, late: Late | None = None) -> dict[str, Any]:
        """Wait for an answer. Raises CandidateFailure of this side for whatever goes wrong there."""
        try:
            return self._peer.hear(nonce, timeout_s, late)
        except Refused as refused:
            raise self._refused(refused) from refused
        except ChannelTimeout:
            raise self._failure(Status.TIMEOUT, f"no answer within {timeout_s:g} s") from None
        except ChannelClosed:
            raise self._ended() from None
        except ChannelError as error:
            raise self._failure(Status.CRASHED, f"broke the protocol: {error}") from error

    def _failure(self, status: Status, reason: str) -> CandidateFailure:
        return CandidateFailure(status, reason, side=self.name)

    def _refused(self, refused: Refused) -> CandidateFailure:
        if refused.kind in OUT_OF_MEMORY_KINDS:
            return self._failure(Status.OUT_OF_MEMORY, refused.message or refused.kind)
        if compilers.is_compile_error(refused.kind, refused.message):
            return self._failure(Status.BUILD_FAILED, f"{refused.message}\n{refused.text}".strip())
        if refused.kind in ("WrongOutput", "StateMismatch"):
            return self._failure(Status.INCORRECT, refused.message)
        return self._failure(Status.CRASHED, f"{refused.kind}: {refused.message}\n{refused.text}".strip())

    def _ended(self) -> CandidateFailure:
        completed = self._process.wait(5.0)
        if completed is None:
            self._process.kill()
            completed = self._process.wait(5.0)
        if completed is None:
            return self._failure(Status.CRASHED, "closed its channel and did not end")
        if completed.killed_reason is KillReason.HOST:
            # Whoever took the memory: another job may succeed, and three in a row count as the candidate's.
            raise InfraFailure("this machine ran short of memory")
        failure = failure_of(completed, self._limits)
        return self._failure(failure.status, failure.reason)

    def log(self) -> str:
        """Return what the process printed, once it has ended."""
        completed = self._process.wait(0.0)
        return "" if completed is None else f"{completed.stdout}{completed.stderr}"

    def close(self) -> None:
        """Close the connection and kill; return when nothing of the process is left."""
        self._worker.close()
        if self._gate is not None:
            self._gate.close()
        self.arena.close()


def _is_time(claimed: Any) -> bool:
    return type(claimed) is int and -MOST_NS <= claimed <= MOST_NS


def candidate_policy(
    device: Device,
    limits: Limits,
    threads: int,
    shown: tuple[Path, ...],
    env: Mapping[str, str] | None = None,
    host_bytes: int = 0,
    scratch: str = "",
) -> SandboxPolicy:
    """Return what a candidate's process may see and use.

    `host_bytes` is shared memory that counts as its own. `scratch` names its temporary directory (see
    `SandboxPolicy`).
    """
    resources = ResourceLimits(
        wall_s=limits.total_s + START_S,
        memory_bytes=limits.memory_bytes + device.host_bytes + host_bytes,
        log_bytes=limits.log_bytes,
        **device.limits,
    )
    tools = compilers.environment(device)
    environment = {**thread_environment(threads), **tools, **device.environment, **(env or {})}
    paths = (*python_paths(), PROGRAM, *compilers.read_only(device), *shown)
    return SandboxPolicy(
        paths, env=environment, devices=device.sandbox, device_node=device.node, limits=resources, scratch=scratch
    )


def failure_of(completed: Completed, limits: Limits) -> CandidateFailure:
    """Return how a process that ended before its answer failed."""
    if completed.killed_reason is KillReason.TIMEOUT:
        return CandidateFailure(Status.TIMEOUT, f"ran past {limits.total_s:g} s")
    if completed.killed_reason is KillReason.MEMORY or "std::bad_alloc" in completed.stderr:
        return CandidateFailure(Status.OUT_OF_MEMORY, f"needed more than {limits.memory_bytes >> 20} MiB")
    if completed.killed_reason is not None:
        what = {KillReason.OUTPUT: "printed too much", KillReason.DISK: "wrote too much to disk"}
        return CandidateFailure(Status.CRASHED, what.get(completed.killed_reason, completed.killed_reason.value))
    tail = completed.stderr.strip()[-500:]
    if completed.signal is not None:
        return CandidateFailure(Status.CRASHED, f"{_signal_name(completed.signal)}\n{tail}".strip())
    return CandidateFailure(
        Status.CRASHED, f"ended with exit code {completed.exit_code} before answering\n{tail}".strip()
    )


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"killed by signal {number}"


def thread_environment(threads: int) -> dict[str, str]:
    """Return thread counts and placement, the same for every process of a comparison.

    The C library keeps all memory that is freed: allocations of any size come from its heap (none is mapped on its
    own, which glibc would do from 32 MiB), and the heap is never trimmed, so that memory that was used once causes no
    more page faults.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
        "OMP_DYNAMIC": "false",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def thread_count() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0))
