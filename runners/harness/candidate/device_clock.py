"""Timing one call on a GPU: device events around it, and the host's clock until the whole device is idle.

Before the first event the caches are overwritten on the device. That also gives the host a head start, so that what
lies between the events is the device's time and not the cost of asking for it. The default stream waits for all
streams but non-blocking ones; those show in the host's clock, which the referee compares with the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

clock = time.perf_counter_ns
LEAST_FLUSH_BYTES = 192 << 20
"""What takes a GPU of today longer to write than a host needs for the first launches."""


class DeviceClock:
    """Times calls; `waits_ns` holds, for the calls since `take_waits`, what the host waited beyond the events."""

    def __init__(self, driver: Any, flush_bytes: int) -> None:
        self._driver = driver
        self._size = max(flush_bytes, LEAST_FLUSH_BYTES)
        self._scratch = driver.allocate(self._size)
        self._begin, self._end = driver.event(), driver.event()
        self._waits: list[int] = []

    def time(self, function: Callable[..., Any], arguments: Any) -> tuple[int, Any]:
        """One call: its device time in nanoseconds, and what it returned."""
        driver, begin, end = self._driver, self._begin, self._end
        driver.synchronize()
        start = clock()
        driver.fill(self._scratch, 0, self._size)
        begin.record()
        result = function(*arguments)
        end.record()
        driver.synchronize()
        host_ns = clock() - start
        device_ns = end.nanoseconds_since(begin)
        self._waits.append(host_ns - device_ns)
        return device_ns, result

    def settle(self) -> None:
        """Wait for the whole device."""
        self._driver.synchronize()

    def take_waits(self) -> list[int]:
        """The waits of the calls since it was last asked."""
        taken, self._waits = self._waits, []
        return taken
