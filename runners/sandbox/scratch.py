"""Scratch directories on the host's disk, for levels without private mounts.

Most have a random name. A *named* one lies at the same path for every process that asks for it, one after the other:
what a compiler has cached there stays valid, since build tools record absolute paths (ninja hashes them into every
command, Triton stores them in its index files). Whoever uses a named directory holds a lock on it (flock(2)), which the
kernel releases when the holder dies, however it dies. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from contextlib import ExitStack
from pathlib import Path

from runners.sandbox.base import SandboxError
from runners.sandbox.removal import DIRECTORY, empty_directory, remove_tree
from runners.sandbox.workspace import work_root

NAMED_PREFIX = "kss"
WAIT_S = 60.0
POLL_S = 0.05


def named_path(name: str) -> Path:
    """Return where the scratch directory of that name lies."""
    return work_root() / f"{NAMED_PREFIX}-{name}"


def named_scratch(name: str, undo: ExitStack) -> Path:
    """Take the directory of that name, empty; `undo` removes it and lets others have it.

    Waits while another process uses it. Raises SandboxError after a minute, and where somebody else's file is there.
    """
    path, deadline = named_path(name), time.monotonic() + WAIT_S
    while (descriptor := _held(path)) is None:
        if time.monotonic() > deadline:
            raise SandboxError(f"the scratch directory {path} is used by another process")
        time.sleep(POLL_S)
    undo.callback(os.close, descriptor)
    undo.callback(remove_tree, path)
    empty_directory(descriptor)
    os.fchmod(descriptor, 0o700)
    return path


def sweep_named() -> None:
    """Remove the named directories that nobody holds any more."""
    for path in work_root().glob(f"{NAMED_PREFIX}-*"):
        if (descriptor := _locked(path)) is not None:
            remove_tree(path)
            os.close(descriptor)


def _held(path: Path) -> int | None:
    """Make the directory and lock it; None where another process has it."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    return _locked(path)


def _locked(path: Path) -> int | None:
    """Open and lock a directory, or return None if that fails.

    Also return None if the path by then refers to another directory: the former holder has removed the one we opened.
    """
    try:
        descriptor = os.open(path, DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The former holder may have removed and another process recreated the directory since it was opened.
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
