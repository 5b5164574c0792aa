"""A process that computes on an arena: the candidate in its sandbox, or a baseline in a trusted child."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.backends.base import Artefact
from runners.harness import compilers
from runners.harness.arena import Arena
from runners.harness.candidate.channel import ChannelClosed, ChannelError, ChannelTimeout
from runners.harness.contents import Setups
from runners.harness.devices import Device, device_of
from runners.harness.enclosure import PROGRAM, Enclosure, enclose
from runners.harness.errors import CandidateFailure, InfraFailure
from runners.harness.memory import SharedMemory
from runners.harness.peer import Peer, Refused
from runners.harness.priority import raise_tree
from runners.harness.zygote import Zygote
from runners.job import Baseline, Limits, ProblemBundle, Status
from runners.problems.base import Case
from runners.sandbox import Completed, KillReason, ResourceLimits, SandboxPolicy, python_paths
from runners.sandbox.meter import process_tree
from runners.wire import to_plain

if TYPE_CHECKING:
    from runners.harness.baselines import Lent

START_S = 60.0
COMPILE_S = 600.0
OUT_OF_MEMORY_KINDS = ("MemoryError", "OutOfMemoryError")


@dataclass(frozen=True)
class Run:
    """One request: inside times per call (claims of the process) and the referee's time around it, in µs. On a
    GPU, per call: `busy_us`, how long the device stayed busy after its last event, and `around_us`, what the host saw
    beside the events."""

    inside_us: list[float]
    outside_us: float
    busy_us: list[float] = field(default_factory=list)
    around_us: list[float] = field(default_factory=list)


class Participant(ABC):
    """Answers `case`, `run` and `store` on its arena. `prepare_s`: how long it may take to prepare for a case."""

    prepare_s = START_S

    def __init__(self, name: str, arena: Arena, peer: Peer, cancel: Callable[[], bool] | None) -> None:
        self.name = name
        self.arena = arena
        self._peer = peer
        peer.cancel = cancel

    def set_case(self, layout: dict[str, Any], case: Case, timeout_s: float | None = None) -> None:
        """Tell the layout of the coming calls, which are of that case."""
        with self._awake():
            self._ask({"op": "case", "case": {**layout, **self._of(case)}}, timeout_s or self.prepare_s)

    @abstractmethod
    def _of(self, case: Case) -> dict[str, Any]:
        """What else this participant may know of a case."""

    def run(self, calls: list[dict[str, Any]], timeout_s: float) -> Run:
        """Make the calls in order and bring all outputs into the arena. The referee's clock runs from when the process
        has shown that it is awake to when it stands still, so that being woken is not counted and work after the
        answer is."""
        self._wake()
        self._ask({"op": "ready"}, START_S)
        started = time.perf_counter_ns()
        answer = self._ask({"op": "run", "calls": calls}, timeout_s)
        outside_us = (self._hold() - started) / 1e3
        inside_us = self._times(answer, "inside_ns", len(calls))
        if self.arena.device is None:
            return Run(inside_us, outside_us)
        busy_us, around_us = (self._times(answer, name, len(calls)) for name in ("busy_ns", "around_ns"))
        return Run(inside_us, outside_us, busy_us, around_us)

    def store(self, timeout_s: float) -> None:
        """Bring the outputs of all but the last call into the arena."""
        with self._awake():
            self._ask({"op": "store"}, timeout_s)

    def replies(self, op: str, details: dict[str, Any], timeout_s: float) -> list[float]:
        """Times in µs that a closer look gives (`floor`, `replay`), as the process claims them; empty if it fails."""
        with contextlib.suppress(CandidateFailure, InfraFailure), self._awake():
            times = self._ask({"op": op, **details}, timeout_s).get(f"{op}_ns")
            if isinstance(times, list) and all(type(t) is int and t > 0 for t in times):
                return [t / 1e3 for t in times]
        return []

    @contextlib.contextmanager
    def _awake(self) -> Iterator[None]:
        """Around a question. Not held after a failure, where the process must be able to end."""
        self._wake()
        yield
        self._hold()

    def _wake(self) -> None:  # noqa: B027 - nothing to do where the process is trusted
        """Let the process run; one that is trusted always does."""

    def _hold(self) -> int:
        """Let it stand still until it is asked again; when it stood (time.perf_counter_ns)."""
        return time.perf_counter_ns()

    @abstractmethod
    def prioritise(self) -> None:
        """Raise the process's priority for timing, where the machine lets us."""

    def _times(self, answer: dict[str, Any], name: str, count: int) -> list[float]:
        times = answer.get(name)
        if not isinstance(times, list) or len(times) != count or not all(type(t) is int for t in times):
            raise self._broken("an answer without its times")
        return [t / 1e3 for t in times]

    @abstractmethod
    def _ask(self, question: dict[str, Any], timeout_s: float, descriptor: int | None = None) -> dict[str, Any]:
        """Ask, turning failures of the far end into CandidateFailure or InfraFailure."""

    @abstractmethod
    def _broken(self, what: str) -> Exception:
        """The exception for an answer that breaks the protocol."""

    @abstractmethod
    def close(self) -> None:
        """End the process and give its arena back."""


class CandidateProcess(Participant):
    """An artefact loaded in a sandbox. Whatever it does wrong becomes a CandidateFailure."""

    def __init__(
        self,
        name: str,
        artefact: Artefact,
        setups: Setups,
        arena: Arena,
        limits: Limits,
        threads: int,
        cancel: Callable[[], bool] | None,
        spare: Enclosure | None = None,
        build_s: float | None = None,
    ) -> None:
        device = device_of(arena.device)
        if spare is None:
            shown = (*artefact.shown, *setups.paths)
            host_bytes = 0 if arena.device else arena.size_bytes
            policy = candidate_policy(device, limits, threads, shown, artefact.env, host_bytes, artefact.scratch)
            spare = enclose(artefact.kind, policy)
        super().__init__(name, arena, spare.peer, cancel)
        self._native = artefact.kind == "native"
        self._limits, self._setups, self._enclosure = limits, setups, spare
        self._process = spare.process
        self.level = self._process.level.value
        try:
            with self._awake():
                hello = {"op": "hello", "kind": artefact.kind, "symbol": artefact.symbol, "device": arena.device}
                hello |= {"building": build_s is not None, **spare.placed(artefact, setups)}
                self._ask(hello, build_s or START_S, arena.descriptor)
        except BaseException:
            self.close()
            raise

    def pack(self, memory: SharedMemory, timeout_s: float) -> None:
        """Have the process write what its compilers left to that memory. Raises CandidateFailure."""
        with self._awake():
            self._ask({"op": "pack", "most_bytes": memory.size_bytes}, timeout_s, memory.descriptor)

    def _wake(self) -> None:
        self._process.resume()

    def _hold(self) -> int:
        """A thread or child that goes on after the answer neither finishes an output nor takes the processor from
        whoever is timed meanwhile."""
        return self._process.pause()

    def _of(self, case: Case) -> dict[str, Any]:
        """The name of what it was given for the case; neither sizes nor anything else that it does not need."""
        name = self._setups.names.get(case.name)
        return {} if name is None else {"setup": name}

    def store(self, timeout_s: float) -> None:
        """Native kernels write in place: nothing to bring."""
        if not self._native:
            super().store(timeout_s)

    def kernels(self, call: dict[str, Any], timeout_s: float) -> list[Any]:
        """What the process says that a call launches: claims, of whatever form. Raises CandidateFailure."""
        with self._awake():
            found = self._ask({"op": "kernels", "call": call}, timeout_s).get("kernels")
        return found if isinstance(found, list) else []

    @property
    def pids(self) -> list[int]:
        """Everything in the sandbox, for whoever counts from outside."""
        return process_tree(self._process.pid)

    def repeated(self, call: dict[str, Any], count: int, timeout_s: float) -> None:
        """Make one call again and again and nothing else, for a profiler to see. Raises CandidateFailure."""
        with self._awake():
            self._ask({"op": "repeated", "call": call, "count": count}, timeout_s)

    def ended(self, timeout_s: float) -> str:
        """Have the process leave by itself; what it, and a profiler around it, printed. Raises CandidateFailure."""
        self._wake()
        self._peer.close()
        completed = self._process.wait(timeout_s)
        if completed is None:
            raise CandidateFailure(Status.TIMEOUT, f"did not end within {timeout_s:g} s")
        return f"{completed.stdout}\n{completed.stderr}"

    def prioritise(self) -> None:
        """Raise everything in the sandbox."""
        raise_tree(self._process.pid)

    def _ask(self, question: dict[str, Any], timeout_s: float, descriptor: int | None = None) -> dict[str, Any]:
        try:
            return self._peer.ask(question, timeout_s, descriptor)
        except Refused as refused:
            raise self._refused(refused) from refused
        except ChannelTimeout:
            raise CandidateFailure(Status.TIMEOUT, f"no answer within {timeout_s:g} s") from None
        except ChannelClosed:
            raise self._ended() from None
        except ChannelError as error:
            raise self._broken(str(error)) from error

    def _broken(self, what: str) -> Exception:
        return CandidateFailure(Status.CRASHED, f"broke the protocol: {what}")

    def _refused(self, refused: Refused) -> CandidateFailure:
        if refused.kind in OUT_OF_MEMORY_KINDS:
            return CandidateFailure(Status.OUT_OF_MEMORY, refused.message or refused.kind)
        if compilers.is_compile_error(refused.kind, refused.message):
            return CandidateFailure(Status.BUILD_FAILED, f"{refused.message}\n{refused.text}".strip())
        if refused.kind == "WrongOutput":
            return CandidateFailure(Status.INCORRECT, refused.message)
        return CandidateFailure(Status.CRASHED, f"{refused.kind}: {refused.message}\n{refused.text}".strip())

    def _ended(self) -> CandidateFailure:
        completed = self._process.wait(5.0)
        if completed is None:
            self._process.kill()
            completed = self._process.wait(5.0)
        if completed is None:
            return CandidateFailure(Status.CRASHED, "hung up and did not end")
        return failure_of(completed, self._limits)

    def log(self) -> str:
        """What the process printed, once it has ended."""
        completed = self._process.wait(0.0)
        return "" if completed is None else f"{completed.stdout}{completed.stderr}"

    def close(self) -> None:
        """Hang up and kill; returns when nothing of it is left."""
        self._enclosure.close()
        self.arena.close()


def candidate_policy(
    device: Device,
    limits: Limits,
    threads: int,
    shown: tuple[Path, ...],
    env: Mapping[str, str] | None = None,
    host_bytes: int = 0,
    scratch: str = "",
) -> SandboxPolicy:
    """What a candidate's process may see and use. `host_bytes`: shared memory that counts as its own. `scratch` names
    its temporary directory (see `SandboxPolicy`)."""
    resources = ResourceLimits(
        wall_s=limits.total_s + START_S,
        memory_bytes=limits.memory_bytes + device.host_bytes + host_bytes,
        log_bytes=limits.log_bytes,
        **device.limits,
    )
    tools = compilers.environment(device)
    environment = {**thread_environment(threads), **tools, **device.environment, **(env or {})}
    paths = (*python_paths(), PROGRAM, *compilers.read_only(device), *shown)
    return SandboxPolicy(paths, env=environment, devices=device.sandbox, limits=resources, scratch=scratch)


def failure_of(completed: Completed, limits: Limits) -> CandidateFailure:
    """How a process that ended before its answer failed."""
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


class BaselineProcess(Participant):
    """The reference in a trusted child. Its failures are the problem's or the machine's, never the candidate's."""

    prepare_s = COMPILE_S

    def __init__(
        self,
        name: str,
        zygote: Zygote,
        bundle: ProblemBundle,
        baseline: Baseline,
        arena: Arena,
        cancel: Callable[[], bool] | None,
        lent: Lent | None = None,
    ) -> None:
        peer = lent.peer if lent else baseline_child(zygote, arena.descriptor)
        super().__init__(name, arena, peer, cancel)
        self._lent = lent
        question = {"op": "open", "bundle": to_plain(bundle), "baseline": baseline.value, "device": arena.device}
        if arena.device is None:
            self._ask(question, START_S)
        else:
            self._ask({**question, "descriptor": True}, START_S, arena.descriptor)

    def run(self, calls: list[dict[str, Any]], timeout_s: float) -> Run:
        """As every participant, but with time to compile: how long the reference takes is the problem's affair."""
        return super().run(calls, max(timeout_s, COMPILE_S))

    def _ask(self, question: dict[str, Any], timeout_s: float, descriptor: int | None = None) -> dict[str, Any]:
        try:
            return self._peer.ask(question, timeout_s, descriptor)
        except Refused as refused:
            raise InfraFailure(f"the baseline failed: {refused.kind}: {refused.message}") from refused
        except ChannelError as error:
            raise InfraFailure(f"the baseline gave no answer: {error}") from error

    def _of(self, case: Case) -> dict[str, Any]:
        """The whole case: the problem prepares itself for it."""
        return {"case": to_plain(case)}

    def _broken(self, what: str) -> Exception:
        return InfraFailure(f"the baseline broke the protocol: {what}")

    def prioritise(self) -> None:
        """Ask the child to raise itself."""
        self._ask({"op": "prioritise"}, START_S)

    def close(self) -> None:
        """Give the child back if it is on loan; else hang up, and it ends by itself."""
        if self._lent is None:
            self._peer.close()
        else:
            self._lent.give_back()
        self.arena.close()


def baseline_child(zygote: Zygote, memory_fd: int) -> Peer:
    """A trusted child that waits to be told which reference it is to run. On a GPU its memory comes later."""
    peer = Peer()
    zygote.fork(b"b", peer.far_socket.fileno(), memory_fd)
    peer.started()
    return peer


def thread_environment(threads: int) -> dict[str, str]:
    """Thread counts and placement, the same for candidates and baselines; freed memory is kept by the allocator, so
    that nobody pays page faults for a buffer of every call."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
        "OMP_DYNAMIC": "false",
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def thread_count() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))
