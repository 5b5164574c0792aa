"""Measure what a process and its descendants use, from /proc.

Resident memory is summed per process, which counts shared pages more than once. The proportional figure is exact but
expensive, so it is read only when the sum exceeds the limit. Processes that vanish while they are read count as
nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runners.sandbox.removal import DIRECTORY

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Walking a tree takes time, and a hostile process could make it endless.
MAX_FILES, MAX_DEPTH = 100_000, 128
UNLIMITED = 1 << 62
# What a UNIX socket's queue holds by default (net.core.wmem_default), with the kernel's own bookkeeping; the filter
# refuses larger ones.
SOCKET_BYTES, FEW_SOCKETS = 256 << 10, 16


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


def cpu_s_with_ended(pids: Iterable[int]) -> float:
    """Return the processor time of these processes in seconds, with that of the children that they have waited for."""
    fields = (_read(f"/proc/{pid}/stat").rpartition(b")")[2].split() for pid in pids)
    return sum(sum(map(int, found[11:15])) for found in fields if len(found) > 21) / TICKS_PER_S


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory with every shared page divided among its users; if it can't be read, the RSS."""
    return sum(_pss_bytes(pid) for pid in pids)


def _pss_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return sample([pid]).memory_bytes


def disk_bytes(directories: Iterable[Path], pids: Iterable[int] = ()) -> int:
    """Return the bytes of blocks in use below these directories, without following symbolic links.

    Files that the processes have unlinked and still hold open count too. More than `MAX_FILES` entries or `MAX_DEPTH`
    levels count as unlimited: nothing that a compiler or kernel needs looks like that.
    """
    total, entries, devices = 0, 0, set[int]()
    for directory in directories:
        with contextlib.suppress(OSError):
            devices.add(directory.lstat().st_dev)
        for found, depth in _below(directory):
            entries += 1
            # Blocks rather than sizes, so that sparse files count for what they take.
            total += found.st_blocks * 512
            if entries > MAX_FILES or depth > MAX_DEPTH:
                return UNLIMITED
    return total + (unlinked_bytes(pids, devices) if devices else 0)


def _below(top: Path) -> Iterator[tuple[os.stat_result, int]]:
    """Yield what lies below a directory, with its depth, by descriptors: a path may be too long to be opened.

    One directory is open for each level. What vanishes meanwhile is left out.
    """
    with contextlib.ExitStack() as everything:
        levels: list[_Level] = []
        _descend(levels, everything, os.fspath(top), None)
        while levels:
            level = levels[-1]
            entry = next(level.listing, None)
            if entry is None:
                level.close()
                levels.pop()
                continue
            with contextlib.suppress(OSError):
                found = os.stat(entry.name, dir_fd=level.directory, follow_symlinks=False)
                yield found, len(levels)
                if stat.S_ISDIR(found.st_mode) and len(levels) <= MAX_DEPTH:
                    _descend(levels, everything, entry.name, level.directory)


@dataclass(frozen=True)
class _Level:
    """Hold a directory that is being listed."""

    directory: int
    listing: Iterator[os.DirEntry[str]]
    close: Callable[[], None]


def _descend(levels: list[_Level], everything: contextlib.ExitStack, name: str, parent: int | None) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        directory = os.open(name, DIRECTORY, dir_fd=parent)
        opened.callback(os.close, directory)
        listing = opened.enter_context(os.scandir(directory))
        kept = opened.pop_all()
        # Closing twice does nothing, so that a walk that is broken off closes what is left.
        everything.callback(kept.close)
        levels.append(_Level(directory, listing, kept.close))


def unlinked_bytes(pids: Iterable[int], devices: set[int]) -> int:
    """Return the bytes of unlinked files on these devices that the processes hold open, each counted once."""
    found: dict[tuple[int, int], int] = {}
    for place in (place for pid in pids for place in _descriptors(pid)):
        with contextlib.suppress(OSError):
            held = os.stat(place)  # noqa: PTH116 - a link of /proc that leads to no path
            if held.st_nlink == 0 and stat.S_ISREG(held.st_mode) and held.st_dev in devices:
                found[held.st_dev, held.st_ino] = held.st_blocks * 512
    return sum(found.values())


def socket_bytes(pids: Iterable[int]) -> int:
    """Return the most that the buffers of the processes' sockets can hold: memory that no process's size shows.

    Few sockets count as none, since everybody talks through one.
    """
    sockets: set[str] = set()
    for place in (place for pid in pids for place in _descriptors(pid)):
        with contextlib.suppress(OSError):
            target = os.readlink(place)  # noqa: PTH115
            if target.startswith("socket:"):
                sockets.add(target)
    return max(0, len(sockets) - FEW_SOCKETS) * SOCKET_BYTES


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208
    except OSError:
        return []


def page_table_bytes(pids: Iterable[int]) -> int:
    """Return the memory of the processes' page tables, which is not part of their resident memory."""
    total = 0
    for pid in pids:
        status = _read(f"/proc/{pid}/status")
        at = status.find(b"VmPTE:")
        if at >= 0:
            total += int(status[at + 6 : status.index(b"kB", at)]) * 1024
    return total


def available_bytes() -> int:
    """Return what the kernel estimates that programs can still allocate on this machine, without swapping."""
    text = _read("/proc/meminfo")
    at = text.find(b"MemAvailable:")
    return int(text[at + 13 : text.index(b"kB", at)]) * 1024 if at >= 0 else UNLIMITED
