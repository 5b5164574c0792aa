"""Start a sandboxed process and supervise it from a thread.

The thread starts the process itself, because the kernel's parent-death signal of an executed launcher follows the
*thread* that started it; a forked launcher gets it from its server. It then collects output, samples what the process
and its descendants use, enforces the limits that the kernel doesn't, and clears away what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import threading
import time
from collections.abc import Iterable
from typing import NoReturn

from runners.sandbox.base import Completed, KillReason, SandboxError, SandboxPolicy, Usage, confinement
from runners.sandbox.capture import Capture
from runners.sandbox.launch import Launch, sealed_input
from runners.sandbox.meter import (
    Sample,
    available_bytes,
    disk_bytes,
    page_table_bytes,
    process_tree,
    proportional_bytes,
    sample,
    socket_bytes,
)
from runners.sandbox.starting import Started, start
from runners.waiting import readable

# Walking the scratch directory and all open descriptors costs more than reading sizes.
SAMPLES_PER_LONG_CHECK = 10
# Below this much memory that programs can still get, the kernel soon ends one of its own choice, maybe the worker.
LEAST_AVAILABLE_BYTES = 256 << 20
STOP_GRACE_S = 1.0
CHUNK_BYTES = 1 << 16


class Sandboxed:
    """Supervise one process. Any thread may call its methods.

    The caller keeps its own ends of `pass_fds`, and closes its copies of the child's ends after `spawn`. `pid` is the
    host process id of the launcher, whose descendants are the job. `uid` is the job's own user id, or None.
    `confinement` names the level, and the control group if there is one.
    """

    def __init__(self, launch: Launch, policy: SandboxPolicy, stdin: bytes | None = None) -> None:
        self._launch, self._policy, self._stdin = launch, policy, stdin
        self.level, self.uid, self.pid = launch.level, launch.uid, 0
        self._stdout, self._stderr = Capture(policy.limits.log_bytes), Capture(policy.limits.log_bytes)
        self._status, self._pidfd, self._init_pidfd = b"", -1, -1
        self._waiting: int | None = None
        self._lock = threading.Lock()
        self._killed: KillReason | None = None
        self._killed_at = 0.0
        self._now = Sample(0, 0.0, 0)
        self._peak_bytes, self._samples, self._cpu_s = 0, 0, 0.0
        self._members: dict[int, int] = {}
        self._paused = self._sampled_paused = self._looked_closely = False
        self._failure: BaseException | None = None
        self._completed: Completed | None = None
        self._started, self._ended = threading.Event(), threading.Event()
        self.confinement = confinement(self.level, grouped=launch.group is not None)
        self._started_at = time.monotonic()
        threading.Thread(target=self._supervise, name="sandbox", daemon=True).start()
        self._started.wait()
        if self.pid == 0:
            self._raise_failure()

    @property
    def alive(self) -> bool:
        """Return False once the process has ended and nothing of it is left."""
        return not self._ended.is_set()

    def kill(self, reason: KillReason = KillReason.CANCELLED) -> None:
        """End the process and its descendants; `wait` tells when they are gone. The first reason given stands."""
        # The lock orders this against `_close_descriptors`: a closed descriptor's number may already be another file.
        with self._lock:
            if self._killed is None and self._pidfd >= 0:
                self._killed, self._killed_at = reason, time.monotonic()
                self._stop()

    def pause(self) -> int:
        """Stop everything below the launcher until `resume`, and return when the last process was stopped.

        The time is in ns of time.perf_counter_ns. Processes that are known from an earlier pause are stopped at once,
        before the search for others. If the kernel does not list children (no CONFIG_PROC_CHILDREN), nothing is
        stopped.
        """
        with self._lock:
            self._signal_members(self._members, signal.SIGSTOP)
            stopped_ns = time.perf_counter_ns()
            seen = set(self._members)
            # A process can fork before its stop signal arrives, so look again until no new one appears.
            while self._pidfd >= 0 and (fresh := set(self._tree()[1:]) - seen):
                self._signal_members(self._take_in(fresh), signal.SIGSTOP)
                seen |= fresh
                stopped_ns = time.perf_counter_ns()
            self._paused = bool(self._members)
        return stopped_ns

    def resume(self) -> None:
        """Let what `pause` stopped run on, and forget what has ended meanwhile."""
        with self._lock:
            self._paused = False
            ended = [pid for pid, pidfd in self._members.items() if readable(pidfd, 0)]
            for pid in ended:
                os.close(self._members.pop(pid))
            self._signal_members(self._members, signal.SIGCONT)

    def _take_in(self, pids: set[int]) -> set[int]:
        """Open a descriptor for each process, and return those that still exist.

        A descriptor never refers to another process that was given the same number later.
        """
        for pid in pids:
            with contextlib.suppress(OSError):
                self._members[pid] = os.pidfd_open(pid)
        return pids & set(self._members)

    def _signal_members(self, pids: Iterable[int], number: signal.Signals) -> None:
        for pid in pids:
            self._signal(self._members[pid], number)

    def wait(self, timeout: float | None = None) -> Completed | None:
        """Return the outcome, or None if the process still runs after `timeout` seconds.

        Raises SandboxError if the sandbox could not be set up.
        """
        return self.outcome() if self._ended.wait(timeout) else None

    def outcome(self) -> Completed:
        """Wait as long as it takes and return the outcome. Raises SandboxError as `wait` does."""
        self._ended.wait()
        if self._completed is None:
            self._raise_failure()
        return self._completed

    def usage(self) -> Usage:
        """Return the latest sample, at most about 20 ms old while the process lives."""
        now, output = self._now, self._stdout.total_bytes + self._stderr.total_bytes
        wall_s = time.monotonic() - self._started_at
        return Usage(now.memory_bytes, self._peak_bytes, now.cpu_s, now.processes, output, wall_s)

    def _raise_failure(self) -> NoReturn:
        if isinstance(self._failure, SandboxError):
            raise self._failure
        raise SandboxError(f"the sandbox could not be started: {self._failure}") from self._failure

    def _supervise(self) -> None:
        try:
            with contextlib.closing(self._launch):
                process = self._start()
                self._watch(process)
                self._finish(process)
        except (OSError, SandboxError) as error:
            self._failure = error
        finally:
            self._ended.set()
            self._started.set()

    def _start(self) -> Started:
        stdin = os.open(os.devnull, os.O_RDONLY) if self._stdin is None else sealed_input(self._stdin)
        if self._policy.cpus is not None:
            os.sched_setaffinity(0, self._policy.cpus)
        try:
            process = start(self._launch, stdin)
        finally:
            os.close(stdin)
        self._launch.started()
        self._pidfd = process.pidfd
        self.pid = process.pid
        self._started.set()
        return process

    def _watch(self, process: Started) -> None:
        with selectors.DefaultSelector() as selector:
            for stream, capture in ((process.stdout, self._stdout), (process.stderr, self._stderr)):
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ, capture.add)
            if self._launch.status_fd is not None:
                os.set_blocking(self._launch.status_fd, False)
                selector.register(self._launch.status_fd, selectors.EVENT_READ, self._note_status)
            selector.register(self._pidfd, selectors.EVENT_READ)
            while not self._turn(selector):
                self._enforce()
            self._drain(selector)

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        """Wait for output, the end or the next sample. True when the launcher has ended."""
        ended = False
        for key, _ in selector.select(self._policy.sample_s):
            if key.fd == self._pidfd:
                ended = True
            elif not _pump(key):
                selector.unregister(key.fileobj)
        return ended

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Take what lies in the pipes, the last of it when everything that could write to them is gone."""
        streams = [key for key in selector.get_map().values() if key.data is not None]
        for last_word in (False, True):
            for key in streams:
                while _pump(key) and self._output_bytes() <= self._policy.limits.output_bytes:
                    pass
            if not last_word:
                self._clear_away()

    def _note_status(self, data: bytes) -> None:
        self._status += data
        self._waiting = self._status_value("waiting-pid")
        pid = self._status_value("child-pid")
        if pid is not None and self._init_pidfd < 0:
            with contextlib.suppress(OSError):
                self._init_pidfd = os.pidfd_open(pid)

    def _status_value(self, name: str) -> int | None:
        for line in self._status.splitlines():
            with contextlib.suppress(ValueError):
                if name in (report := json.loads(line)):
                    return int(report[name])
        return None

    def _output_bytes(self) -> int:
        return self._stdout.total_bytes + self._stderr.total_bytes

    def _enforce(self) -> None:
        paused = self._paused
        if not (paused and self._sampled_paused):  # what stands still uses no more than when it was last looked at
            self._take_sample()
            self._sampled_paused = paused
        limits = self._policy.limits
        if time.monotonic() - self._started_at > limits.wall_s:
            self.kill(KillReason.TIMEOUT)
        if self._output_bytes() > limits.output_bytes:
            self.kill(KillReason.OUTPUT)
        if self._now.memory_bytes > limits.memory_bytes:
            self.kill(KillReason.MEMORY)
        if self._samples % SAMPLES_PER_LONG_CHECK == 0 and not (paused and self._looked_closely):
            self._look_closely()
            self._looked_closely = paused
        if self._killed and time.monotonic() - self._killed_at > STOP_GRACE_S:
            self._kill_tree()

    def _tree(self) -> list[int]:
        """Return the launcher and all its descendants, the oldest first.

        Once a forked launcher has ended, its server reaps it, and its number may be somebody else's.
        """
        if self._launch.fork is not None and (self._pidfd < 0 or readable(self._pidfd, 0)):
            return []
        return process_tree(self.pid)

    def _members_of_job(self) -> list[int]:
        """Return the processes that count as the job's: all but forked launchers, which share a server's memory."""
        tree = self._tree()
        if self._launch.fork is None:
            return tree
        return [pid for pid in tree if pid not in (self.pid, self._waiting)]

    def _take_sample(self) -> None:
        tree = self._members_of_job()
        taken = sample(tree)
        if taken.memory_bytes > self._policy.limits.memory_bytes:
            taken = Sample(proportional_bytes(tree), taken.cpu_s, taken.processes)
        self._now = taken
        self._peak_bytes = max(self._peak_bytes, taken.memory_bytes)
        self._cpu_s = max(self._cpu_s, taken.cpu_s)
        self._samples += 1

    def _look_closely(self) -> None:
        """Enforce what takes longer to measure: memory beside the resident one, disk, and the host's own reserve."""
        tree, limits = self._members_of_job(), self._policy.limits
        hidden = page_table_bytes(tree) + socket_bytes(tree)
        if self._now.memory_bytes + hidden > limits.memory_bytes:
            self.kill(KillReason.MEMORY)
        if self._launch.disk and disk_bytes(self._launch.disk, tree) > limits.scratch_bytes:
            self.kill(KillReason.DISK)
        if available_bytes() < LEAST_AVAILABLE_BYTES:
            self.kill(KillReason.HOST)

    def _stop(self) -> None:
        """End the job: ask the launcher to clean up, or kill what is below it, or kill the launcher with everything.

        A launcher that is killed is stopped before, so that no new process appears below it.
        """
        asked = self._launch.stop_signal
        if asked is None:
            self._signal(self._init_pidfd, signal.SIGKILL)
            self._kill(self._tree()[1:])
        elif asked == signal.SIGKILL:
            self._signal(self._pidfd, signal.SIGSTOP)
            self._signal(self._init_pidfd, signal.SIGKILL)
            self._kill_tree()
        else:
            self._signal(self._pidfd, asked)

    @staticmethod
    def _signal(pidfd: int, number: signal.Signals) -> None:
        if pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)

    def _kill_tree(self) -> None:
        """End the launcher and all its descendants, the youngest first."""
        self._kill(self._tree())

    @staticmethod
    def _kill(pids: list[int]) -> None:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _clear_away(self) -> None:
        """Wait until the namespace's init is gone, which is after everything in it."""
        if self._init_pidfd >= 0:
            self._signal(self._init_pidfd, signal.SIGKILL)
            readable(self._init_pidfd, STOP_GRACE_S)

    def _finish(self, process: Started) -> None:
        wall_s = time.monotonic() - self._started_at
        ended, cpu_s = process.reap()
        self._close_descriptors(process)
        code = self._status_value("exit-code") if self._launch.status_fd is not None else ended
        # The kernel ends a job at its group's limit before we see it there.
        if self._killed is None and self._launch.group is not None and self._launch.group.ran_out_of_memory:
            self._killed = KillReason.MEMORY
        # Without an exit code in the status pipe it was the launcher that failed, not the job; or it was forked, and
        # ended from outside.
        if code is None and self._killed is None and (ended is None or ended >= 0):
            # A forked launcher says so only when everything is set up.
            if self._launch.fork is not None and self._status_value("child-pid") is not None:
                raise SandboxError("the sandbox was ended from outside")
            raise SandboxError(f"the sandbox could not be set up: {self._stderr.text().strip()}")
        exit_code, number = _split_code(code if code is not None else (ended or -signal.SIGKILL))
        if self._killed is not None and code is None:
            exit_code, number = None, int(signal.SIGKILL)
        self._completed = Completed(
            exit_code=exit_code,
            signal=number,
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            output_bytes=self._output_bytes(),
            wall_s=wall_s,
            cpu_s=max(self._cpu_s, cpu_s, (self._status_value("cpu-ms") or 0) / 1e3),
            peak_memory_bytes=self._peak_bytes,
            killed_reason=self._killed,
            level=self.level,
        )

    def _close_descriptors(self, process: Started) -> None:
        with self._lock:
            for fd in (self._pidfd, self._init_pidfd):
                if fd >= 0:
                    os.close(fd)
            self._pidfd = self._init_pidfd = -1
            for pidfd in self._members.values():
                os.close(pidfd)
            self._members.clear()
        process.close()


def _pump(key: selectors.SelectorKey) -> bool:
    """Hand on what can be read. False at the end of the stream, or when nothing is left for now."""
    try:
        data = os.read(key.fd, CHUNK_BYTES)
    except BlockingIOError:
        return False
    if data:
        key.data(data)
    return bool(data)


def _split_code(code: int) -> tuple[int | None, int | None]:
    """Split a code into (exit code, signal): negative numbers and 128 + n are signals."""
    if code < 0:
        return None, -code
    if 128 < code <= 128 + signal.NSIG:
        return None, code - 128
    return code, None
