"""Decide which tests may run at the same time, where several pytest processes (pytest-xdist) share a machine.

Two parties never overlap. Ordinary tests run beside one another, those that evaluate kernels among them: the harness
has a lock of its own for the moments in which it times, and its verdicts must hold beside other work. A test that
asserts on measured time runs alone. Evaluations of two processes must share that lock: with one lock for each, the
suite took 21 minutes instead of 23, and an honest kernel was called suspect, since two that time at once on two cores
disturb each other more than any other work does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ORDINARY, TIMING = PARTIES = ("ordinary", "timing")


class Place:
    """Hold the place of a process in a party, from a test on to the next one of that party.

    Two processes of which one is through with its party would take turns if places were given up after every test, and
    each would stand still while the other runs. Tests are ordered by party, so that the wait for a place is short.
    Places are file locks in `folder`, which the kernel frees when a process dies.
    """

    def __init__(self, folder: Path) -> None:
        """Hold no place yet."""
        self._folder = folder
        self._party = ""
        self._held = ExitStack()

    def take(self, party: str) -> None:
        """Keep a place in this party, or give up the one in another and wait until nobody holds one there.

        Whoever waits holds the turnstile, so that newcomers queue behind it and nobody starves.
        """
        if party == self._party:
            return
        self.leave()
        with _locked(self._folder / "turn", fcntl.LOCK_EX):
            for other in PARTIES:
                if other != party:
                    with _locked(self._folder / other, fcntl.LOCK_EX):
                        pass
            kind = fcntl.LOCK_EX if party == TIMING else fcntl.LOCK_SH
            self._held.enter_context(_locked(self._folder / party, kind))
        self._party = party

    def leave(self) -> None:
        """Give up the place, if any."""
        self._held.close()
        self._party = ""


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
