"""Finding sandboxes whose supervisor is gone.

bubblewrap dies with its parent, but its init asks for that only when the mounts are made: a supervisor killed
in those few milliseconds leaves a job that nobody watches. Each sandbox is therefore named (as its host name)
after its supervisor, and `sweep_orphans` ends those whose supervisor no longer lives. The Landlock launcher
checks for its parent itself and needs no sweep.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

PREFIX = "ks"
START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command name


def supervisor_name() -> str:
    """This process, told apart from every other on this host: process namespace, id and time of start."""
    return f"{PREFIX}-{_namespace()}-{os.getpid()}-{_start_time(os.getpid())}"


def sweep_orphans() -> list[int]:
    """Kill what dead supervisors of this process namespace left behind; the process ids that were hit. Call it
    when a worker starts and from time to time."""
    hit: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if _is_orphan(path):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(path.parent.name), signal.SIGKILL)
                hit.append(int(path.parent.name))
    return hit


def _is_orphan(path: Path) -> bool:
    try:
        arguments = path.read_bytes().split(b"\0")
        name = arguments[arguments.index(b"--hostname") + 1].decode()
        prefix, namespace, pid, start = name.split("-")
    except (OSError, ValueError, IndexError):
        return False
    ours = arguments[0].endswith(b"/bwrap") and prefix == PREFIX and namespace == _namespace()
    return ours and _start_time(int(pid)) != start


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: int) -> str:
    """Clock ticks since boot; empty when there is no such process, or only a zombie of it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[START_TIME_FIELD]
