"""What the referee must know of a device: its lock, and where its candidates' buffers live.

A GPU slots in here: `visible` names the device for the processes, `flush_bytes` says how much to write to empty its
last-level cache, and the candidate's program moves whole arenas to and from the device in `prepare` and `store`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from runners.harness.errors import Cancelled
from runners.harness.state import state_dir
from runners.sandbox import Devices

LOCK_POLL_S = 0.05


@dataclass(frozen=True)
class Device:
    """One measuring device. `index` tells devices of one kind apart."""

    kind: str
    index: int = 0
    sandbox: Devices = Devices.NONE
    environment: dict[str, str] = field(default_factory=dict)
    flush_bytes: int = 0

    @contextmanager
    def exclusively(self, cancel: Callable[[], bool] | None = None) -> Iterator[float]:
        """Hold the device alone, for timing; yields the seconds waited. Raises Cancelled."""
        with self._locked(fcntl.LOCK_EX, cancel) as waited_s:
            yield waited_s

    @contextmanager
    def shared(self, cancel: Callable[[], bool] | None = None) -> Iterator[float]:
        """Hold the device beside others who don't time: builds and checks wait while somebody is timing."""
        with self._locked(fcntl.LOCK_SH, cancel) as waited_s:
            yield waited_s

    @contextmanager
    def _locked(self, kind: int, cancel: Callable[[], bool] | None) -> Iterator[float]:
        path = state_dir("locks") / f"{self.kind}-{self.index}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        started = time.monotonic()
        try:
            while not _try_lock(descriptor, kind):
                if cancel is not None and cancel():
                    raise Cancelled
                time.sleep(LOCK_POLL_S)
            yield time.monotonic() - started
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
