"""Bound a job by a control group (cgroup v2), where the administrator has delegated a part of the tree to us.

The kernel then counts what no look at a process shows: page tables, socket buffers, dentries, and the scratch tmpfs. A
group of ours is found in two ways: KERNELSCI_CGROUP names it, or our own group is called `kernelsci` and its parent is
ours, as systemd makes it for a unit with `Delegate=yes` and `DelegateSubgroup=kernelsci`. Processes may only be in
leaves of the tree, which is why the group with the jobs must not be our own. Source: Documentation/admin-guide/
cgroup-v2.rst of Linux. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.sandbox.base import ResourceLimits
from runners.sandbox.supervisor import names_the_dead, supervisor_name

NAMED, OURS = "KERNELSCI_CGROUP", "kernelsci"
NEEDED = ("memory", "pids")
# The launcher and its shell count too.
OVERHEAD_BYTES, OVERHEAD_PROCESSES = 32 << 20, 8
# A shell joins before anything of the job exists, so that no process of it is ever outside; `0` means oneself.
_JOIN = ("/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"')
GONE_WITHIN_S = 2.0


@dataclass(frozen=True)
class Delegation:
    """Name the group in which jobs get groups of their own, or say why there is none."""

    base: Path | None
    reason: str = ""


class Group:
    """Hold one job's group until `close`."""

    def __init__(self, base: Path, limits: ResourceLimits) -> None:
        self.path = base / f"{supervisor_name()}-{secrets.token_hex(4)}"
        self.path.mkdir()
        try:
            for name, value in _settings(limits).items():
                (self.path / name).write_text(value)
            # Older kernels lack swap accounting or the killing of the whole group at once.
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with contextlib.suppress(OSError):
                    (self.path / name).write_text(value)
        except OSError:
            self.close()
            raise

    def joining(self, argv: list[str]) -> list[str]:
        """Return the command line that joins the group and then becomes `argv`."""
        return [*_JOIN, str(self.path / "cgroup.procs"), *argv]

    @property
    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has ended a process of the group for its memory limit."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text().splitlines():
                name, count = line.split()
                if name == "oom_kill" and int(count) > 0:
                    return True
        return False

    def close(self) -> None:
        """End what is left in the group, and remove it."""
        _remove(self.path)


def own_group(limits: ResourceLimits, undo: ExitStack) -> Group | None:
    """Return a fresh group for a job, removed by `undo`; None where nothing is delegated or the kernel refuses."""
    base = delegation().base
    if base is None:
        return None
    try:
        group = Group(base, limits)
    except OSError:
        return None
    undo.callback(group.close)
    return group


@cache
def delegation() -> Delegation:
    """Return the group that is delegated to us, with its controllers enabled for the groups of jobs."""
    base = _candidate()
    if base is None:
        return Delegation(None, f"no group is delegated: set {NAMED}, or Delegate=yes and DelegateSubgroup={OURS}")
    try:
        missing = [name for name in NEEDED if name not in (base / "cgroup.controllers").read_text().split()]
        if missing:
            return Delegation(None, f"{base} lacks {', '.join(missing)}")
        (base / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))
    except OSError as error:
        return Delegation(None, f"{base}: {error.strerror}")
    return Delegation(base)


def sweep_groups() -> None:
    """Remove the groups that dead supervisors left, with what still runs in them."""
    base = delegation().base
    for path in _groups(base) if base is not None else ():
        if names_the_dead(path.name.rpartition("-")[0]):
            _remove(path)


def _groups(base: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from [path for path in base.iterdir() if path.is_dir() and not path.is_symlink()]


def _candidate() -> Path | None:
    if named := os.environ.get(NAMED):
        return Path(named)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            # The line of the unified hierarchy begins with 0:: (cgroups(7)).
            if line.startswith("0::") and Path(line[3:]).name == OURS:
                return Path("/sys/fs/cgroup" + line[3:]).parent
    return None


def _settings(limits: ResourceLimits) -> dict[str, str]:
    # The private tmpfs of a sandbox is memory, and counted as its own.
    memory_bytes = limits.memory_bytes + limits.scratch_bytes + OVERHEAD_BYTES
    return {"memory.max": str(memory_bytes), "pids.max": str(limits.processes + OVERHEAD_PROCESSES)}


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + GONE_WITHIN_S
    while path.exists() and time.monotonic() < deadline:
        # Killed processes leave their group a moment later, and until then it cannot be removed.
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.01)
