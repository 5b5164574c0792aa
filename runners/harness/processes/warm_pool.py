"""Start processes before they are needed: on a GPU machine, starting takes longer than everything else together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

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


class Entry(NamedTuple, Generic[Started]):
    """Hold a process that is started or starting. `wanted` is set once an evaluation waits for it."""

    future: Future[Started]
    wanted: threading.Event
    kind: bool


class WarmPool(Generic[Started]):
    """Start processes of two kinds in the background. Threads may share a pool.

    `start` is given an event that is set once an evaluation waits for the process that it makes, and its kind. `alive`
    says whether a process is still of use, `close` ends it. At most `most` stand ready, since each holds memory of the
    device.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[threading.Event, bool], Started],
        alive: Callable[[Started], bool],
        close: Callable[[Started], None],
        most: int,
    ) -> None:
        self._start, self._alive, self._close, self._most = start, alive, close, most
        self._lock = threading.Lock()
        self._ready: deque[Entry[Started]] = deque()
        self._threads = ThreadPoolExecutor(max(1, most), thread_name_prefix=name)

    def take(self, kind: bool = False) -> Started | None:
        """Return the first process of a kind that is ready, else the one started first, or None if none is alive."""
        while True:
            with self._lock:
                alike = [entry for entry in self._ready if entry.kind == kind]
                if not alike:
                    return None
                chosen = next((entry for entry in alike if entry.future.done()), alike[0])
                self._ready.remove(chosen)
            chosen.wanted.set()
            self.hurry(chosen.wanted)
            with suppress(*FAILURES):
                started = chosen.future.result()
                if self._alive(started):
                    return started
                self._close(started)

    def hurry(self, wanted: threading.Event) -> None:
        """Let a start go on that was held up, because an evaluation waits for it."""

    def expect(self, needed: int, kind: bool = False) -> None:
        """Start the processes that are missing for an evaluation that needs so many of a kind.

        Start none beyond that: every process that has opened the device makes opening it slower for the next one, by
        8 ms of 110 (docs/evidence/gpu-verdicts.md, start 113).
        """
        with self._lock:
            there = sum(entry.kind == kind for entry in self._ready)
            for _ in range(min(needed, self._most) - there):
                wanted = threading.Event()
                self._ready.append(Entry(self._threads.submit(self._start, wanted, kind), wanted, kind))

    def close(self) -> None:
        """End all processes."""
        for end in filter(None, [self.give_up(False), self.give_up(True)]):
            end()

    def give_up(self, kind: bool) -> Callable[[], None] | None:
        """Let nobody take the processes of a kind, end starts that have not begun, and return how to end the others.

        Return None if there are none.
        """
        with self._lock:
            ended = [entry for entry in self._ready if entry.kind == kind]
            self._ready = deque(entry for entry in self._ready if entry.kind != kind)
        begun = [entry for entry in ended if not entry.future.cancel()]
        for entry in begun:
            # A start that waits for the device, or for the end of a timing, need wait no longer.
            entry.wanted.set()
            self.hurry(entry.wanted)
        return partial(self._end, begun) if begun else None

    def _end(self, entries: Sequence[Entry[Started]]) -> None:
        """End processes together, since each takes a tenth of a second to give the device back."""
        try:
            with ThreadPoolExecutor(len(entries)) as threads:
                list(threads.map(self._end_one, entries))
        except RuntimeError:  # the interpreter exits, and starts no threads any more
            for entry in entries:
                self._end_one(entry)

    def _end_one(self, entry: Entry[Started]) -> None:
        with suppress(*FAILURES):
            self._close(entry.future.result())


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
