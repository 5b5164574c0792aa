"""Start processes before they are needed: on a GPU machine, starting takes longer than everything else together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from runners.candidate.channel import ChannelError
from runners.errors import Cancelled, InfraFailure
from runners.harness.devices.device import LOCK_POLL_S, Device
from runners.harness.processes.peer import Peer, Refused
from runners.sandbox import SandboxError

# Long, because a start stands still while somebody is timing.
START_S = 600.0
FAILURES = (SandboxError, OSError, InfraFailure, ChannelError, Refused)

Started = TypeVar("Started")
# A driver opens its device for one process at a time. With two, one opens it while the other loads torch's kernels.
# More only wait, and an evaluation then gets its first process later.
_opening = threading.BoundedSemaphore(2)


class WarmPool(Generic[Started]):
    """Start processes in the background. Threads may share a pool.

    `start` is given an event that is set once an evaluation waits for the process that it makes. `alive` says whether
    a process is still of use, `close` ends it. At most `most` stand ready, since each holds memory of the device.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[threading.Event], Started],
        alive: Callable[[Started], bool],
        close: Callable[[Started], None],
        most: int,
    ) -> None:
        self._start, self._alive, self._close, self._most = start, alive, close, most
        self._lock = threading.Lock()
        self._ready: deque[tuple[Future[Started], threading.Event]] = deque()
        self._threads = ThreadPoolExecutor(max(1, most), thread_name_prefix=name)

    def take(self) -> Started | None:
        """Return the first process that is ready, else the one started first, or None if none is alive."""
        while True:
            with self._lock:
                if not self._ready:
                    return None
                ready = (number for number, (future, _) in enumerate(self._ready) if future.done())
                index = next(ready, 0)
                future, wanted = self._ready[index]
                del self._ready[index]
            wanted.set()
            self.hurry(wanted)
            with suppress(*FAILURES):
                started = future.result()
                if self._alive(started):
                    return started
                self._close(started)

    def hurry(self, wanted: threading.Event) -> None:
        """Let a start go on that was held up, because an evaluation waits for it."""

    def expect(self, needed: int) -> None:
        """Start the processes that are missing for an evaluation that needs so many.

        Start none for later evaluations: every process that has opened the device makes opening it slower for the next
        one, by 8 ms of 110 (docs/evidence/gpu-verdicts.md, start 113).
        """
        with self._lock:
            for _ in range(min(needed, self._most) - len(self._ready)):
                wanted = threading.Event()
                self._ready.append((self._threads.submit(self._start, wanted), wanted))

    def close(self) -> None:
        """End all processes."""
        self.emptied()()

    def emptied(self) -> Callable[[], None]:
        """Let nobody take what stands ready, and return how to end it."""
        with self._lock:
            ended, self._ready = list(self._ready), deque()
        return lambda: self._end(ended)

    def _end(self, started: Sequence[tuple[Future[Started], threading.Event]]) -> None:
        for future, wanted in started:
            wanted.set()
            with suppress(*FAILURES):
                self._close(future.result())


def open_device(peer: Peer, device: Device, wanted: threading.Event) -> None:
    """Let a process open the device, when no job is timed there and when it is its turn.

    As soon as an evaluation waits for the process, this is left out, and happens at first use.
    """
    with suppress(Cancelled), _turn(wanted), device.shared(wanted.is_set):
        peer.ask({"op": "warm", "device": device.kind}, START_S)


@contextmanager
def _turn(wanted: threading.Event) -> Iterator[None]:
    while not _opening.acquire(timeout=LOCK_POLL_S):
        if wanted.is_set():
            raise Cancelled
    try:
        yield
    finally:
        _opening.release()
