"""Measure what a process and its descendants use, from /proc.

Resident memory is summed per process, which counts shared pages more than once. The proportional figure is exact but
expensive, so it is read only when the sum exceeds the limit. Processes that vanish while they are read count as
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Walking a tree takes time, and a hostile process could make it endless.
MAX_FILES = 100_000


@dataclass(frozen=True)
class Sample:
    """Hold one measurement of a process tree."""

    memory_bytes: int
    cpu_s: float
    processes: int


def process_tree(root: int) -> list[int]:
    """Return `root` and all its live descendants, parents first.

    Orphans are missed unless a process in the tree adopts them, as the init of a process namespace and a child
    subreaper do.
    """
    tree = [root]
    for pid in tree:
        tree += _children(pid)
    return tree


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - fifty times a second
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass
    return found


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
    finally:
        os.close(fd)


def sample(pids: Iterable[int]) -> Sample:
    """Return the resident memory and processor time of these processes, summed."""
    memory, ticks, count = 0, 0, 0
    for pid in pids:
        # The command name, in parentheses, may itself hold parentheses and spaces.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 21:
            ticks += int(fields[11]) + int(fields[12])
            memory += int(fields[21]) * PAGE_BYTES
            count += 1
    return Sample(memory, ticks / TICKS_PER_S, count)


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory with every shared page divided among its users; if it can't be read, the RSS."""
    return sum(_pss_bytes(pid) for pid in pids)


def _pss_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return sample([pid]).memory_bytes


def disk_bytes(directories: Iterable[Path]) -> int:
    """Return the bytes of blocks in use below these directories, without following symbolic links.

    More than `MAX_FILES` entries count as unlimited.
    """
    total, entries, waiting = 0, 0, [os.fspath(path) for path in directories]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listing:
                for entry in listing:
                    entries += 1
                    # Blocks rather than sizes, so that sparse files count for what they take.
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if entries > MAX_FILES:
                        return 1 << 62
        except OSError:
            continue
    return total
