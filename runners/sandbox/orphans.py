"""Find sandboxes whose supervisor is gone.

bubblewrap dies with its parent, but its init requests that only after the mounts are made: a supervisor killed in
those few milliseconds leaves a job that nobody watches. Each sandbox is therefore named (by its host name) after its
supervisor, and `sweep_orphans` ends those whose supervisor no longer lives. The Landlock launcher checks for its
parent itself, but leaves its scratch directory, which bears the same name, on the disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
from pathlib import Path

from runners.sandbox.scratch import remove_tree, sweep_named

PREFIX = "ks"
START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command name


def supervisor_name() -> str:
    """Return a name for this process that is unique on this host: process namespace, id and start time."""
    return f"{PREFIX}-{_namespace()}-{os.getpid()}-{_start_time(os.getpid())}"


def sweep_orphans() -> list[int]:
    """Kill the processes and remove the scratch directories that dead supervisors of this process namespace left.

    Returns the process ids that were killed. Call it when a worker starts and from time to time.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*-*-*-*"):
        if _names_the_dead(path.name.rpartition("-")[0]):
            remove_tree(path)
    sweep_named()
    hit: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if _names_the_dead(_sandbox_name(path)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(path.parent.name), signal.SIGKILL)
                hit.append(int(path.parent.name))
    return hit


def _sandbox_name(cmdline: Path) -> str:
    """Return the host name that a bubblewrap process was given, or an empty text for any other process."""
    try:
        arguments = cmdline.read_bytes().split(b"\0")
        found = arguments[arguments.index(b"--hostname") + 1].decode()
    except (OSError, ValueError, IndexError):
        return ""
    return found if arguments[0].endswith(b"/bwrap") else ""


def _names_the_dead(name: str) -> bool:
    """Return whether this name was given by a supervisor of our process namespace that no longer lives."""
    match = re.fullmatch(rf"{PREFIX}-(\d+)-(\d+)-(\d+)", name)
    # Process ids mean nothing outside their namespace, and a number may have been reused: the start time tells.
    return match is not None and match[1] == _namespace() and _start_time(int(match[2])) != match[3]


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: int) -> str:
    """Return the process's start in clock ticks since boot, or an empty text if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[START_TIME_FIELD]
