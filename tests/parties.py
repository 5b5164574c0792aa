"""Decide which tests may run at the same time, where several pytest processes (pytest-xdist) share a machine.

Three parties never overlap. Ordinary tests run beside one another. Tests that evaluate kernels run beside one another
too: the harness has a lock of its own for the moments in which it times. A test that measures time runs alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ORDINARY, EVALUATES, TIMING = PARTIES = ("ordinary", "evaluates", "timing")


@contextmanager
def admitted(party: str, folder: Path) -> Iterator[None]:
    """Wait until no test of another party runs, and hold a place in this one.

    Whoever waits holds the turnstile, so that newcomers queue behind it and nobody starves. Places are file locks in
    `folder`, which the kernel frees when a process dies.
    """
    with ExitStack() as place:
        with _locked(folder / "turn", fcntl.LOCK_EX):
            for other in PARTIES:
                if other != party:
                    with _locked(folder / other, fcntl.LOCK_EX):
                        pass
            place.enter_context(_locked(folder / party, fcntl.LOCK_EX if party == TIMING else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
