"""Check that a module of tests leaves its process as it found it.

Tests of a process share its environment, its Celery application and its device locks. What one module leaves behind
fails another one, in whatever order the two happen to run, so the module that left it fails instead.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from celery import current_app

# Libraries add variables of their own when they are imported (KMP_DUPLICATE_LIB_OK), pytest names the running test.
OURS = ("KERNELSCI_", "DJANGO_", "DATABASE_", "REDIS_", "CELERY_")
LOCK = "kernelsci-*.lock"
# A module may start servers that the following ones share.
MOST_NEW_DESCRIPTORS = 64
# What ends or warms a process in the background waits until no other process of the suite times on the device.
RELEASED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Shared:
    """Hold what tests of a process share and must restore."""

    environment: dict[str, str]
    folder: Path
    celery_broker: str

    @classmethod
    def now(cls) -> Shared:
        """Return the present state."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
        return cls(environment, Path.cwd(), str(current_app.conf.broker_url))

    def differences(self, other: Shared) -> list[str]:
        """Return one line for everything that is not the same in `other`."""
        names = sorted(self.environment.keys() | other.environment.keys())
        found = [
            f"the environment's {name} is {other.environment.get(name)!r} instead of {self.environment.get(name)!r}"
            for name in names
            if self.environment.get(name) != other.environment.get(name)
        ]
        for what in ("folder", "celery_broker"):
            if (mine := getattr(self, what)) != (its := getattr(other, what)):
                found.append(f"the process's {what} is {its} instead of {mine}")
        return found


@contextmanager
def restored() -> Iterator[None]:
    """Fail at the end of the block where something is not as it was at the beginning. Raises AssertionError."""
    before, descriptors = Shared.now(), len(open_files())
    yield
    found = before.differences(Shared.now()) + [f"the lock {path} is held" for path in locks_after_waiting()]
    if (opened := _new_descriptors(descriptors)) > MOST_NEW_DESCRIPTORS:
        found.append(f"{opened} more descriptors are open")
    assert not found, "left behind: " + "; ".join(found)


def locks_after_waiting() -> list[Path]:
    """Return the device locks that this process holds, once processes that are ended in the background had time."""
    deadline = time.monotonic() + RELEASED_WITHIN_S
    while (held := held_locks()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


def held_locks() -> list[Path]:
    """Return the device locks that this process has open; nobody opens one without waiting for it."""
    return [path for path in open_files() if path.match(LOCK)]


def open_files() -> list[Path]:
    """Return what the descriptors of this process lead to."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor that the folder was read with is closed by now
            found.append(descriptor.readlink())
    return found


def _new_descriptors(before: int) -> int:
    opened = len(open_files()) - before
    if opened > MOST_NEW_DESCRIPTORS:
        gc.collect()  # what only cycles keep open is no leak
        opened = len(open_files()) - before
    return opened
