"""Name what a supervisor makes after the supervisor, so that anybody can tell what a dead one has left behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

PREFIX = "ks"
START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command name


def supervisor_name() -> str:
    """Return a name for this process that is unique on this host: process namespace, id and start time."""
    return f"{PREFIX}-{_namespace()}-{os.getpid()}-{_start_time(os.getpid())}"


def names_the_dead(name: str) -> bool:
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
