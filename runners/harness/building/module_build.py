"""Build Python candidates: whatever they compile at import and in their first calls is compiled here, once.

A sandboxed process of its own imports the module and makes one call of every case that will be checked or timed. What
its compilers leave behind (torch's extensions, Triton, inductor) is taken out as one packed file and kept by content;
the processes that check and time the module start from copies of it, in this evaluation and in later ones.

The build has a process of its own, so that checks and timing find the same warm caches: a module cannot tell one from
the other by what is there. Nothing is written back after the build, and an entry's key holds the module's whole text,
its problem, the target and all versions: no module finds another's files, and no process those of a later one.

A module whose text mentions no compiler is not built. One that hides it compiles in each of its processes, and runs
into their shorter limits.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from runners.backends.base import Artefact
from runners.backends.cache import BuildCache
from runners.backends.cpp import compiler_version, processor
from runners.candidate.caches import LENGTH_BYTES, MOST_INDEX_BYTES, CacheError, read_index
from runners.errors import CANDIDATE, CandidateFailure, InfraFailure
from runners.harness.devices.device import Device
from runners.harness.memory import staging
from runners.harness.memory.arena import Arena
from runners.harness.memory.shared_memory import SharedMemory
from runners.harness.processes import compilers
from runners.harness.processes.participant import CandidateProcess, candidate_policy, thread_count
from runners.harness.processes.preloading import modules_for
from runners.harness.processes.sandboxed_worker import SandboxedWorker, start_worker
from runners.harness.processes.work_queues import environment_for
from runners.harness.timing import environment
from runners.harness.timing.environment import HARNESS_VERSION
from runners.harness.timing.sessions import Bench
from runners.job import BuildReport, Language, Limits, Source, Status
from runners.problems.base import Case, Purpose
from runners.sandbox import SandboxLevel
from runners.sandbox.probe import allowed_level
from runners.sandbox.workspace import work_root
from runners.targets import Target
from runners.wire import to_plain

# How much one module may leave; a process's temporary directory holds twice that.
MOST_CACHE_BYTES = 128 << 20
STORE_VARIABLE = "KERNELSCI_MODULE_CACHE_BYTES"
# Each module leaves up to MOST_CACHE_BYTES; the least recently used ones go first.
STORE_BYTES = 4 << 30
SCRATCH_BYTES = 1 << 30
# Packing copies at most MOST_CACHE_BYTES, so this is generous even on a loaded machine.
PACK_S = 60.0
END_S = 5.0

_TRITON = re.compile(r"\btriton\b", re.IGNORECASE)
# Names by which Python code reaches a compiler. A miss costs time only: the module then compiles in each process.
_COMPILES = re.compile(
    r"load_inline|cpp_extension|compile\(|torch\.compile|_dynamo|_inductor|torch\.jit|@jit|\bnumba\b|\bcupy\b|\bcffi\b"
    r"|nvrtc|hiprtc|tilelang|cutlass|\bcute\b|helion|taichi|pycuda|\bwarp\b|subprocess|_compile_kernel|CUDAExtension"
)


def looks_compiled(source: Source) -> bool:
    """Return whether a source is a module whose text looks as if it compiled something when it runs."""
    return source.language in (Language.PYTHON, Language.TRITON) and _mentions_compilers(source.text)


def compiles(artefact: Artefact) -> bool:
    """Return whether an artefact is a module that looks as if it compiled something. Triton's interpreter compiles
    nothing."""
    if artefact.kind != "module":
        return False
    return _mentions_compilers(artefact.loadable.read_text(), triton="TRITON_INTERPRET" not in artefact.env)


def _mentions_compilers(text: str, *, triton: bool = True) -> bool:
    return bool((triton and _TRITON.search(text)) or _COMPILES.search(text))


class BuildFailure(CandidateFailure):
    """Report that a module did not build. `log` holds what its compilers printed, `seconds` how long they took."""

    def __init__(self, cause: CandidateFailure, status: Status, reason: str, log: str, seconds: float) -> None:
        super().__init__(status, reason, cause.case, cause.side)
        self.log, self.seconds = log, seconds


@dataclass
class ModuleBuilds:
    """Build the modules of one evaluation, one side after the other."""

    bench: Bench
    device: Device
    target: Target
    _taken: Counter[str] = field(default_factory=Counter)

    def built(self, side: str, artefact: Artefact) -> Artefact:
        """Return the artefact with its caches and the report of its build, or unchanged if it compiles nothing.

        Raises BuildFailure, and InfraFailure if a compiler is missing on this machine.
        """
        if not compiles(artefact):
            return artefact
        key = self._key(artefact)
        scratch = self._scratch(key)
        entry = BuildCache("modules", _digest([key, scratch, str(work_root())]), _store_bytes())
        packed = artefact.loadable.with_suffix(".caches")
        report = entry.fetch(packed)
        if report is None:
            built_there = replace(artefact, scratch=scratch)
            report = _Build(self.bench, self.device, self._cases(), built_there, side, packed).report()
            entry.keep(packed, report)
        packed.chmod(0o644)
        report = replace(report, artefact_hash=artefact.report.artefact_hash)
        return _with_caches(replace(artefact, report=report), packed, scratch)

    def _key(self, artefact: Artefact) -> str:
        """Return the digest of everything on which the compiled files depend."""
        cases = [to_plain(case) for case in self._cases()]
        tools = compilers.environment(self.device)
        versions = [compiler_version(tools[name]) for name in ("CXX",) if name in tools]
        ninja = compilers.ninja()
        versions += [compiler_version(ninja)] if ninja else []
        versions += [str(compilers.cuda_home())] if self.device.kind == "cuda" else []
        parts = [artefact.loadable.read_text(), sorted(artefact.env.items()), self.bench.bundle.content_hash, cases]
        where = [environment.fixed(self.target), processor(), tools, versions, allowed_level().value]
        return _digest([*parts, *where, HARNESS_VERSION, self.bench.limits.memory_bytes])

    def _cases(self) -> list[Case]:
        """Return every case of the problem once."""
        found = [case for purpose in Purpose for case in self.bench.problem.cases(self.target.key, purpose)]
        return list({case.name: case for case in found}.values())

    def _scratch(self, key: str) -> str:
        """Return the name of the module's temporary directory if those are not private.

        A second side with the same text gets another name, since both exist at the same time.
        """
        if allowed_level() is SandboxLevel.BUBBLEWRAP:
            return ""
        self._taken[key] += 1
        return f"{key[:24]}-{self._taken[key]}"


@dataclass
class _Build:
    """Carry out one build. `doing` names the current step, for its failures."""

    bench: Bench
    device: Device
    cases: list[Case]
    artefact: Artefact
    side: str
    packed: Path
    doing: str = "importing the module"

    def report(self) -> BuildReport:
        """Build, and leave the packed caches. Raises BuildFailure, InfraFailure."""
        started = time.monotonic()
        self._deadline = started + self.bench.limits.build_s
        arena = self.bench.oracle.arena(self.side, self._arena_bytes())
        worker = self._start_worker(arena)
        note = ""
        try:
            with self._process(arena, worker) as process:
                self._call_all(process)
                note = self._harvested(process)
        except CandidateFailure as failure:
            raise self._explained(failure, _printed(worker), time.monotonic() - started) from failure
        finally:
            self.bench.oracle.reset()
        log = "\n".join(part for part in (_printed(worker), note) if part)
        return BuildReport(True, time.monotonic() - started, False, log)

    @contextmanager
    def _process(self, arena: Arena, worker: SandboxedWorker) -> Iterator[CandidateProcess]:
        bench, left_s = self.bench, self._left_s
        process = CandidateProcess(
            self.side,
            self.artefact,
            bench.setups,
            arena,
            self._limits,
            thread_count(),
            bench.cancel,
            worker,
            build_s=left_s,
        )
        try:
            yield process
        finally:
            # The process has ended before its memory is read, so that it can't change the index after it was checked.
            process.close()

    def _call_all(self, process: CandidateProcess) -> None:
        """Make one call of every case, in random order, so that nothing tells which of them are timed or hidden."""
        bench = self.bench
        for case in bench.rng.sample(self.cases, len(self.cases)):
            self.doing = f"the first call of case {case.name}"
            content = bench.oracle.make(case, case.distributions[0])[0]
            try:
                process.set_case(staging.case_layout(bench.problem, content), case, self._left_s)
                process.run([staging.stage(process.arena, [content], bench.rng)[0].message], self._left_s)
            except CandidateFailure as failure:
                failure.case = failure.case or case.name
                raise
            bench.oracle.reset()

    def _harvested(self, process: CandidateProcess) -> str:
        """Take the caches out of the process, which has ended before they are read. Return a note if there are none."""
        memory = SharedMemory("caches", MOST_CACHE_BYTES)
        try:
            process.pack(memory, PACK_S)
            process.close()
            note, content = "", _checked(memory)
        except (CandidateFailure, CacheError) as failure:
            note, content = f"what it compiled is not kept: {str(failure).splitlines()[0]}", _EMPTY
        finally:
            memory.close()
        self.packed.write_bytes(content)
        return note

    def _arena_bytes(self) -> int:
        oracle, sizes = self.bench.oracle, []
        for case in self.cases:
            sizes.append(staging.arena_bytes(oracle.make(case, case.distributions[0])[0], 1))
            oracle.reset()
        return max(sizes)

    @property
    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise CandidateFailure(Status.TIMEOUT, "out of time", side=self.side)
        return left_s

    @property
    def _limits(self) -> Limits:
        """Return the limits of the job, with memory for compilers and a clock of their own."""
        limits = self.bench.limits
        return replace(
            limits,
            total_s=limits.build_s,
            memory_bytes=limits.memory_bytes + compilers.jobs() * compilers.JOB_BYTES,
        )

    def _start_worker(self, arena: Arena) -> SandboxedWorker:
        """Take a warm worker, or start one with room for compilers."""
        bench, artefact = self.bench, self.artefact
        if bench.warm_workers and not (artefact.env or artefact.scratch):
            warm = bench.warm_workers.take_for(bench.limits, one_stream=artefact.one_stream)
            if warm is not None:
                return warm
        shown, host_bytes = (*artefact.shown, *bench.setups.paths), 0 if arena.device else arena.size_bytes
        policy = candidate_policy(
            self.device,
            self._limits,
            thread_count(),
            shown,
            environment_for(artefact),
            host_bytes,
            artefact.scratch,
        )
        room = {name: max(SCRATCH_BYTES, getattr(policy.limits, name)) for name in ("scratch_bytes", "file_bytes")}
        roomy = replace(policy, limits=replace(policy.limits, **room))
        return start_worker(artefact.kind, roomy, modules_for(self.device))

    def _explained(self, failure: CandidateFailure, log: str, seconds: float) -> CandidateFailure:
        """Describe the failure with the step in which it happened. Raises InfraFailure if the machine lacks a tool."""
        said = f"{failure.reason}\n{log}"
        status, reason = failure.status, f"{self.doing}: {failure.reason}"
        if status is Status.TIMEOUT:
            reason = f"{self.doing} did not end within the build's {self.bench.limits.build_s:g} s"
        elif status in (Status.BUILD_FAILED, Status.CRASHED) and (
            missing := compilers.complaint(self.device, said)
        ):
            if self.side == CANDIDATE:
                raise InfraFailure(missing) from failure
            reason = missing
        elif "No space left on device" in said or "File too large" in said:
            status, reason = Status.CRASHED, f"{self.doing}: wrote too much to disk"
        elif status is Status.BUILD_FAILED and compilers.lacks_memory(said):
            limit = self._limits.memory_bytes >> 20
            status, reason = Status.OUT_OF_MEMORY, f"{self.doing}: a compiler needed more than {limit} MiB"
        elif status is Status.BUILD_FAILED:
            reason = compilers.essence(log) or compilers.essence(failure.reason) or reason
        return BuildFailure(failure, status, reason, f"{failure.reason}\n{log}".strip(), seconds)


def _printed(worker: SandboxedWorker) -> str:
    """Return what the process and its compilers printed, once it has ended."""
    completed = worker.process.wait(END_S)
    printed = () if completed is None else (completed.stdout.strip(), completed.stderr.strip())
    return compilers.without_modules("\n".join(filter(None, printed)))


# A packed file with an empty index, for modules whose caches can't be kept.
_EMPTY = len(b"[]").to_bytes(LENGTH_BYTES, "big") + b"[]"


def _checked(memory: SharedMemory) -> bytes:
    """Return the packed file that a process left in that memory, which may hold anything. Raises CacheError."""
    head = io.BytesIO(memory.read(0, min(memory.size_bytes, LENGTH_BYTES + MOST_INDEX_BYTES)))
    entries = read_index(head)
    size_bytes = head.tell() + sum(entry.size_bytes for entry in entries)
    if size_bytes > memory.size_bytes:
        raise CacheError(f"files of {size_bytes} bytes; at most {memory.size_bytes} are kept")
    return memory.read(0, size_bytes)


def _with_caches(artefact: Artefact, packed: Path, scratch: str) -> Artefact:
    """Return the artefact with its caches, or unchanged if the file holds none."""
    if packed.stat().st_size <= len(_EMPTY):
        return artefact
    return replace(artefact, caches=packed, scratch=scratch)


def _store_bytes() -> int:
    with suppress(ValueError):
        return int(os.environ.get(STORE_VARIABLE, ""))
    return STORE_BYTES


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
