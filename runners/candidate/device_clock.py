"""Time calls on a GPU: device events around a call, and the host's clock beside them.

There are three ways. `arm` and `reach` time one call on a device that is held until the whole call is enqueued (see
`gate`): the time between the events is device time, free of the host. `time` is for calls that cannot be held,
because they wait for the device inside or enqueue more launches than its queue takes: the events then include the
host's time. `steady` times calls one after the other, host included, as a user's loop sees them.

Before the first event of a held or single call the caches are overwritten on the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .gate import Gate

clock = time.perf_counter_ns
# What takes a GPU of today longer to write than a host needs for the first launches.
LEAST_FLUSH_BYTES = 192 << 20


@dataclass(frozen=True)
class Reached:
    """Hold what a held call took on the device, and how long the device stayed busy after its last event, in ns.

    The latter is negative if it is shorter than asking the device takes.
    """

    device_ns: int
    busy_ns: int


class DeviceClock:
    """Time calls on the first visible device. Without a gate nothing can be held."""

    def __init__(self, driver: Any, flush_bytes: int, gate: Gate | None = None) -> None:
        self.driver, self._gate = driver, gate
        self._size = max(flush_bytes, LEAST_FLUSH_BYTES)
        self._scratch = driver.allocate(self._size)
        self._begin, self._end = driver.event(), driver.event()

    @property
    def holds(self) -> bool:
        """Return whether calls can be held here."""
        return self._gate is not None

    def arm(self, function: Callable[..., Any], arguments: Any) -> tuple[int, Any]:
        """Enqueue one call behind the gate. Return the host's time for that in ns, and what the call returned."""
        driver, begin, end, gate = self.driver, self._begin, self._end, self._gate
        if gate is None:
            raise RuntimeError("this device cannot be held")
        driver.synchronize()
        driver.fill(self._scratch, 0, self._size)
        gate.shut()
        begin.record()
        start = clock()
        result = function(*arguments)
        enqueued = clock() - start
        end.record()
        return enqueued, result

    def reach(self) -> Reached:
        """Wait until the call that was armed is done and the whole device is idle. Raises DriverError."""
        self._end.wait()
        reached = clock()
        self.driver.synchronize()
        idle = clock()
        # Asking an idle device takes some microseconds too, the more streams the process has.
        self.driver.synchronize()
        asking_ns = clock() - idle
        return Reached(self._end.nanoseconds_since(self._begin), idle - reached - asking_ns)

    def time(self, function: Callable[..., Any], arguments: Any) -> tuple[int, Any]:
        """Make one call that is not held. Return the time between its events in ns, and what the call returned."""
        driver, begin, end = self.driver, self._begin, self._end
        driver.synchronize()
        driver.fill(self._scratch, 0, self._size)
        begin.record()
        result = function(*arguments)
        end.record()
        driver.synchronize()
        return end.nanoseconds_since(begin), result

    def steady(
        self, function: Callable[..., Any], calls: Sequence[Any], warm_ns: int, repeats: int
    ) -> tuple[list[int], list[Any]]:
        """Make calls one after the other, as a user's loop does.

        The first call only leads in, and is repeated for `warm_ns`, since a processor that has just been woken takes
        several times as long for the same work. A call that is alone is repeated `repeats` times instead of the
        others. Return the time in ns for all others together, from the end of the first on the device to the end of
        the last, after the time that everything before took; and what the calls returned. If there are no others,
        their time is 0 and the first is waited for.
        """
        driver, others = self.driver, calls[1:] or [calls[0]] * repeats
        driver.synchronize()
        start = clock()
        results = [function(*calls[0])]
        if warm_ns or not others:
            driver.synchronize()
        while clock() - start < warm_ns:
            _again(function, calls[0], results)
            driver.synchronize()
        if not others:
            return [clock() - start, 0], results
        if warm_ns:
            # The loop starts behind a call that is under way. From an idle device, its first launch and the wait for
            # its end would count too, which a steady loop does not see.
            _again(function, calls[0], results)
        self._begin.record()
        for arguments in others:
            if len(calls) == 1:
                results.clear()
            results.append(function(*arguments))
        self._end.record()
        reached = self.reach()
        others_ns = reached.device_ns + max(0, reached.busy_ns)
        return [max(0, clock() - start - others_ns), others_ns], results

    def floor_ns(self, calls: int = 9) -> list[int]:
        """Return device times in ns of the smallest possible launch, a fill of four bytes."""
        return [self.time(self.driver.fill, (self._scratch, 0, 4))[0] for _ in range(calls)]

    def settle(self) -> None:
        """Wait for the whole device."""
        self.driver.synchronize()


def _again(function: Callable[..., Any], arguments: Any, results: list[Any]) -> None:
    """Repeat the first call. What it returned before is freed first, since the call takes as much memory again."""
    results.clear()
    results.append(function(*arguments))
