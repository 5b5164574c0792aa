"""Sandboxed interpreters started ahead, with torch imported and nothing else known: for Python candidates on a GPU box,
where importing torch takes longer than everything else together. Each serves one candidate process and is gone.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from runners.harness.devices import Device
from runners.harness.enclosure import Enclosure, enclose, new_inbox
from runners.harness.errors import InfraFailure
from runners.harness.participant import candidate_policy, thread_count
from runners.job import Limits
from runners.sandbox import SandboxError

PRELOAD = ("torch", "triton")
MOST_SPARES = 8
LIFE_S = 3600.0


class Spares:
    """Spare processes of one device, for candidates under the usual limits. Safe to share between threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._ready: deque[Future[Enclosure]] = deque()
        self._evaluations = 0
        self._threads = ThreadPoolExecutor(MOST_SPARES, thread_name_prefix="spares")

    def take(self, limits: Limits) -> Enclosure | None:
        """A spare, the one started first; None where there is none alive or the limits are unusual."""
        if limits.memory_bytes != Limits().memory_bytes or limits.log_bytes != Limits().log_bytes:
            return None
        while True:
            with self._lock:
                if not self._ready:
                    return None
                started = self._ready.popleft()
            with suppress(SandboxError, OSError, InfraFailure):
                spare = started.result()
                if spare.process.alive:
                    return spare
                spare.close()

    def expect(self, needed: int) -> None:
        """An evaluation that needs so many begins: start what is missing, in the background. From the second on there
        is a series, and as many again are started for the evaluation after it."""
        with self._lock:
            wanted = min(needed if self._evaluations == 0 else 2 * needed, MOST_SPARES)
            self._evaluations += 1
            for _ in range(wanted - len(self._ready)):
                self._ready.append(self._threads.submit(self._start))

    def _start(self) -> Enclosure:
        inbox = new_inbox()
        policy = candidate_policy(self._device, Limits(total_s=LIFE_S), thread_count(), (inbox,))
        return enclose("module", policy, PRELOAD, inbox)

    def close(self) -> None:
        """End them all."""
        with self._lock:
            ended, self._ready = list(self._ready), deque()
        for started in ended:
            with suppress(SandboxError, OSError, InfraFailure):
                started.result().close()
