"""Measure how much of the host's processors other programs use while kernels are timed.

Sides that take turns meet the same neighbours and need not suffer alike: a kernel that hands out its work dynamically
loses less to a busy core than one that waits for its slowest thread. A comparison then says something about the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runners.sandbox.meter import TICKS_PER_S, cpu_s_with_ended, process_tree

# user, nice, system, irq, softirq and steal of a line of /proc/stat; idle and iowait are no use of a processor.
_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
STAT = Path("/proc/stat")


@dataclass(frozen=True)
class _Reading:
    at_s: float
    busy_s: float
    own_s: float


class Neighbours:
    """Watch the processors that this process may use, over as many blocks as there are."""

    def __init__(self) -> None:
        self._others_s = self._processors_s = 0.0

    @property
    def share(self) -> float | None:
        """Return what others used of the processors during all blocks, None where it is not known."""
        return min(1.0, max(0.0, self._others_s / self._processors_s)) if self._processors_s > 0 else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count a block. Descendants that end within it without being waited for would count as others."""
        before = _read()
        yield
        after = _read()
        if before is not None and after is not None:
            self._others_s += (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
            self._processors_s += (after.at_s - before.at_s) * len(os.sched_getaffinity(0))


def _read() -> _Reading | None:
    """Return what was used so far, or None where the kernel does not say."""
    try:
        lines = [line.split() for line in STAT.read_text().splitlines()]
    except OSError:
        return None
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = sum(int(line[field]) for line in lines if line and line[0] in mine for field in _BUSY_FIELDS)
    return _Reading(time.monotonic(), ticks / TICKS_PER_S, cpu_s_with_ended(process_tree(os.getpid())))
