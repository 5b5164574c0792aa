"""Allow one supervisor per `var` folder: hold its lock, and tell a second supervisor about the first."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from kernelsci_site.services.var import Var


class AlreadyRunningError(RuntimeError):
    """Report that another supervisor holds this folder. The message names its process and address."""


class Instance:
    """Hold the lock. The kernel releases it when this process dies, in whatever way."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.write_holder()

    def write_holder(self, address: str = "") -> None:
        """Write down who holds the lock and at which address it answers, for the message of a refusal."""
        self._file.seek(0)
        self._file.truncate()
        json.dump({"pid": os.getpid(), "address": address}, self._file)
        self._file.flush()


@contextmanager
def only_instance(var: Var) -> Iterator[Instance]:
    """Hold `var` for this process. Raises `AlreadyRunningError` when another process does."""
    path = var.folder() / "supervisor.lock"
    with path.open("a+") as file:
        try:
            # A lock of the kernel instead of a file with a process id, which would survive a crash and may later
            # name another process.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(_refusal(file, var)) from None
        yield Instance(file)


def running_address(var: Var) -> str | None:
    """Return the address of the supervisor of `var`, or None when none runs."""
    try:
        with only_instance(var):
            return None
    except AlreadyRunningError:
        return str(json.loads((var.root / "supervisor.lock").read_text() or "{}").get("address", ""))


def _refusal(file: IO[str], var: Var) -> str:
    file.seek(0)
    try:
        held = json.loads(file.read())
    except json.JSONDecodeError:
        held = {}
    where = held.get("address") or "an address it has not chosen yet"
    return f"already running for {var.root}: process {held.get('pid', '?')} at {where}"
