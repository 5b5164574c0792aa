"""Give each sandboxed process a user id of its own, where the caller is root.

The range is the one systemd's documentation lists as unused (60578–61183). An id is held by binding an abstract UNIX
socket of its name: the kernel lets go of it when the holder dies, however it dies.
"""

from __future__ import annotations

import os
import random
import socket
from types import TracebackType

from runners.sandbox.base import SandboxError

FIRST_UID, LAST_UID = 60578, 61183


class Account:
    """Hold a user id that nobody else on this machine holds, until `close`. Raises SandboxError when all are taken."""

    def __init__(self) -> None:
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.uid = self._take()

    def _take(self) -> int:
        # A random start spreads the ids, so that a process that outlived its holder rarely meets the next one.
        start = random.randrange(LAST_UID - FIRST_UID + 1)  # noqa: S311 - spreads the ids, keeps no secret
        count = LAST_UID - FIRST_UID + 1
        for step in range(count):
            uid = FIRST_UID + (start + step) % count
            try:
                # A name that starts with a NUL byte lies in the abstract namespace: it is no file and vanishes with its
                # holder.
                self._lock.bind(f"\0kernel-scientist-sandbox-{uid}")
            except OSError:
                continue
            return uid
        self._lock.close()
        raise SandboxError(f"all {count} user ids for sandboxes are taken")

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Account:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def own_account() -> Account | None:
    """Return a fresh account if this process is root, else None: the process then keeps the caller's user."""
    return Account() if os.geteuid() == 0 else None
