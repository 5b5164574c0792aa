"""Find sandboxes whose supervisor is gone.

bubblewrap dies with its parent, but its init requests that only after the mounts are made: a supervisor killed in
those few milliseconds leaves a job that nobody watches. Each sandbox is therefore named (by its host name) after its
supervisor, and `sweep_orphans` ends those whose supervisor no longer lives. The Landlock launcher checks for its
parent itself, but leaves its scratch directory, which bears the same name, on the disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path

from runners.sandbox.base import SandboxError
from runners.sandbox.cgroup import sweep_groups
from runners.sandbox.removal import DIRECTORY, remove_at
from runners.sandbox.scratch import sweep_named
from runners.sandbox.supervisor import PREFIX, names_the_dead
from runners.sandbox.workspace import work_root

logger = logging.getLogger(__name__)


def sweep_orphans() -> list[int]:
    """Kill the processes and remove the folders that dead supervisors of this process namespace left.

    Returns the process ids that were killed. Call it when a worker starts and from time to time. Never raises: what
    cannot be removed stays, with a line in the log.
    """
    try:
        _sweep_folders(work_root())
        sweep_named()
        sweep_groups()
    except (OSError, SandboxError):
        logger.warning("what earlier jobs left could not be swept", exc_info=True)
    return [pid for name in _processes() if (pid := _ended(int(name))) is not None]


def _sweep_folders(root: Path) -> None:
    directory = os.open(root, DIRECTORY)
    try:
        names = [name for name in os.listdir(directory) if name.startswith(f"{PREFIX}-")]  # noqa: PTH208 - a descriptor
        for name in names:
            if names_the_dead("-".join(name.split("-")[:4])) and not remove_at(directory, name):
                logger.warning("%s/%s cannot be removed", root, name)
    finally:
        os.close(directory)


def _processes() -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*")]


def _ended(pid: int) -> int | None:
    """Kill a process if it is the sandbox of a dead supervisor, and return its id then."""
    with contextlib.suppress(OSError):
        # Opened before it is looked at: the number may be another process's by the time the signal is sent.
        descriptor = os.pidfd_open(pid)
        try:
            if names_the_dead(_sandbox_name(Path(f"/proc/{pid}/cmdline"))):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return pid
        finally:
            os.close(descriptor)
    return None


def _sandbox_name(cmdline: Path) -> str:
    """Return the host name that a bubblewrap process was given, or an empty text for any other process."""
    try:
        arguments = cmdline.read_bytes().split(b"\0")
        found = arguments[arguments.index(b"--hostname") + 1].decode()
    except (OSError, ValueError, IndexError):
        return ""
    return found if arguments[0].endswith(b"/bwrap") else ""
