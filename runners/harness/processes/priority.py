"""Raise the priority of processes that are being timed, if the machine permits it (root or CAP_SYS_NICE).

Other load on a machine inflates timings several times over: a parallel region waits for its slowest thread, and that
for another process's time slice. Both sides of a comparison are raised alike, only under the device's lock, and only
for as long as they live. Threads started later inherit it. If the kernel groups processes by session (autogroup,
sched(7)), the niceness that counts is the group's, so that is set too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from runners.sandbox.meter import process_tree

# Above all ordinary load.
TIMED_NICENESS = -15


def raise_tree(pid: int) -> None:
    """Raise a process and all its live descendants, every thread."""
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{member}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), TIMED_NICENESS)
        _raise_session(member)


def pin_tree(pid: int, processors: set[int]) -> None:
    """Confine a process and all its live descendants, every thread, to some of the processors."""
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{member}/task").iterdir():
                os.sched_setaffinity(int(thread.name), processors)


def _raise_session(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(TIMED_NICENESS))


def may_raise() -> bool:
    """Return whether this process may raise priorities."""
    current = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, current - 1)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, current)
    return True
