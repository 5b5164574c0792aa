"""Keep sandboxed interpreters warm for Python candidates on a GPU machine.

They are forked with torch imported and have opened the device, and know nothing else. Each stands still until it is
needed, serves one candidate process and ends. Starting them takes a processor's caches and memory from neighbours
(beside imports, a call that the host paces becomes slower by a quarter). So starts stand still while a job is timed,
except those that the timing waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from runners.harness.devices.capacity import standing
from runners.harness.devices.device import LOCK_POLL_S, Device
from runners.harness.processes.participant import candidate_policy, thread_count
from runners.harness.processes.preloading import modules_for
from runners.harness.processes.sandboxed_worker import SandboxedWorker, new_inbox, start_worker
from runners.harness.processes.warm_pool import WarmPool, open_device
from runners.harness.processes.work_queues import ONE_QUEUE
from runners.job import Limits
from runners.sandbox.fork_server import await_imports

# The sandbox's limit counts from the start, and a worker may wait long before it is used.
LIFE_S = 3600.0


class Pausable(Protocol):
    """Describe a process that can be paused."""

    def pause(self) -> object:
        """Pause the process."""

    def resume(self) -> None:
        """Resume the process."""


class WarmWorkers(WarmPool[SandboxedWorker]):
    """Keep warm workers of one device, for candidates under the usual limits.

    Their two kinds have the usual number of work queues of the device, and one (see `work_queues`). With `with_triton`
    set, workers that are started from now on have Triton ready too.
    """

    with_triton = False

    def __init__(self, device: Device) -> None:
        super().__init__(
            "warm-workers",
            self._started,
            lambda worker: worker.process.alive,
            lambda worker: worker.close(),
            standing(device).workers,
        )
        self._device = device
        self._guard, self._changed = threading.Lock(), threading.Event()
        self._starting: dict[threading.Event, SandboxedWorker] = {}
        self._held: list[Pausable] = []
        self._timing = 0

    def take_for(self, limits: Limits, *, one_stream: bool) -> SandboxedWorker | None:
        """Return a warm worker of that kind, or None if there is none or the limits are unusual."""
        usual = Limits()
        if (limits.memory_bytes, limits.log_bytes) != (usual.memory_bytes, usual.log_bytes):
            return None
        return self.take(one_stream)

    def hurry(self, wanted: threading.Event) -> None:
        """Let a start go on that an evaluation waits for, even during timing."""
        with self._guard:
            if (worker := self._starting.get(wanted)) is not None:
                worker.process.resume()
        self._changed.set()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Hold up all starts within this block except those that are waited for.

        What is being imported for several starts is awaited before it.
        """
        await_imports()
        with self._guard:
            self._timing += 1
            for wanted, worker in self._starting.items():
                if not wanted.is_set():
                    # A worker that waits must not take processor time from a job that is timed.
                    worker.process.pause()
            for process in self._held:
                process.pause()
        try:
            yield
        finally:
            with self._guard:
                self._timing -= 1
                if not self._timing:
                    for process in (*(worker.process for worker in self._starting.values()), *self._held):
                        process.resume()
            self._changed.set()

    def hold(self, process: Pausable) -> None:
        """Pause a process that no evaluation waits for during timing, until `release`."""
        with self._guard:
            self._held.append(process)
            if self._timing:
                process.pause()

    def release(self, process: Pausable) -> None:
        """Resume a held process, because an evaluation needs it, and pause it no more."""
        with self._guard:
            self._held.remove(process)
            process.resume()

    def _started(self, wanted: threading.Event, one_stream: bool) -> SandboxedWorker:
        self._wait_for_quiet(wanted)
        inbox, queues = new_inbox(), ONE_QUEUE if one_stream else {}
        policy = candidate_policy(self._device, Limits(total_s=LIFE_S), thread_count(), (inbox,), queues)
        worker = start_worker("module", policy, modules_for(self._device, with_triton=self.with_triton), inbox)
        try:
            with self._registered(worker, wanted):
                open_device(worker.peer, self._device, wanted)
            worker.process.pause()
        except BaseException:
            worker.close()
            raise
        return worker

    def _wait_for_quiet(self, wanted: threading.Event) -> None:
        while self._timing and not wanted.is_set():
            self._changed.clear()
            self._changed.wait(LOCK_POLL_S)

    @contextmanager
    def _registered(self, worker: SandboxedWorker, wanted: threading.Event) -> Iterator[None]:
        with self._guard:
            self._starting[wanted] = worker
            if self._timing and not wanted.is_set():
                worker.process.pause()
        try:
            yield
        finally:
            with self._guard:
                del self._starting[wanted]
