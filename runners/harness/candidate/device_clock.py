"""Timing one call on a GPU: device events around it, and the host's clock until the whole device is idle.

Before the first event the caches are overwritten on the device. That also gives the host a head start, so that what
lies between the events is the device's time and not the cost of asking for it. The default stream waits for all
streams but non-blocking ones; work there keeps the device busy after the last event, which is measured too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

clock = time.perf_counter_ns
LEAST_FLUSH_BYTES = 192 << 20
"""What takes a GPU of today longer to write than a host needs for the first launches."""


class DeviceClock:
    """Times calls. Kept of each call until `take`: how long the device stayed busy after the last event was reached,
    and what the host's clock saw of the call beside the time between the events."""

    def __init__(self, driver: Any, flush_bytes: int) -> None:
        self.driver = driver
        self._size = max(flush_bytes, LEAST_FLUSH_BYTES)
        self._scratch = driver.allocate(self._size)
        self._begin, self._end = driver.event(), driver.event()
        self._busy: list[int] = []
        self._around: list[int] = []

    def time(self, function: Callable[..., Any], arguments: Any) -> tuple[int, Any]:
        """One call: its device time in nanoseconds, and what it returned."""
        driver, begin, end = self.driver, self._begin, self._end
        driver.synchronize()
        start = clock()
        driver.fill(self._scratch, 0, self._size)
        begin.record()
        result = function(*arguments)
        end.record()
        end.wait()
        reached = clock()
        driver.synchronize()
        idle = clock()
        device_ns = end.nanoseconds_since(begin)
        self._busy.append(idle - reached)
        self._around.append(idle - start - device_ns)
        return device_ns, result

    def floor_ns(self, calls: int = 9) -> list[int]:
        """Device time between two events around the smallest launch there is, a fill of four bytes."""
        times = [self.time(self.driver.fill, (self._scratch, 0, 4))[0] for _ in range(calls)]
        self.take()
        return times

    def settle(self) -> None:
        """Wait for the whole device."""
        self.driver.synchronize()

    def take(self) -> dict[str, list[int]]:
        """`busy_ns` and `around_ns` of the calls since it was last asked."""
        taken = {"busy_ns": self._busy, "around_ns": self._around}
        self._busy, self._around = [], []
        return taken
