"""Confine a process without namespaces: with its own user, limits, Landlock and the system-call filter.

For machines where user namespaces are blocked (Ubuntu 24.04's AppArmor rule, containers without CAP_SYS_ADMIN).
What this level does not do, and bubblewrap does:
- No process namespace. A process is found through its ancestors, so what is orphaned while the launcher itself
  is being killed with SIGKILL stays behind. Other users' /proc entries stay visible to system calls that take a
  process id, though Landlock closes /proc, ptrace and (since ABI 6) signals to everything outside.
- No private mounts. The scratch directory lies on the host's disk and its size is checked five times a second,
  not by the kernel; host file names that the policy shows can be told apart from those that don't exist.
- No network namespace. Sockets are refused by the filter alone, and TCP by Landlock from ABI 4 on.
- No IPC namespace. System V and POSIX objects are refused by the filter alone.
- Before ABI 3 (Linux 6.2) truncation of read-only files is not held by Landlock, before ABI 6 (6.12) signals
  are not; where the caller is root the job's own user holds both, where not, only file modes do the first.
- Not started as root, all jobs share the caller's user, so the process limit counts all the caller's tasks.
- An interpreter below a directory of mode 0700 (/root) can be entered only by keeping CAP_DAC_READ_SEARCH: the
  job may then read whatever the *policy* shows, whatever its file mode. Files outside stay closed by Landlock.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runners.sandbox.base import SandboxError, SandboxLevel, SandboxPolicy
from runners.sandbox.bubblewrap import HARDWARE_PATHS, SYSTEM_LINKS, SYSTEM_PATHS, rlimits
from runners.sandbox.devices import device_binds
from runners.sandbox.removal import remove_tree
from runners.sandbox.scratch import named_scratch
from runners.sandbox.seccomp import filter_program
from runners.sandbox.workspace import new_folder

CAP_DAC_READ_SEARCH = 2
# What programs expect of /dev; none of these reaches hardware.
DEVICE_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The C library, OpenMP and torch read these. The rest of /proc stays closed.
PROCESS_FILES = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems")


@dataclass(frozen=True)
class Config:
    """Hold what `confine` reads, at this level and for programs forked into bubblewrap's namespaces.

    Paths that don't exist are skipped; `filter` is hexadecimal; `rlimits` uses the names of prlimit(1); `uid` None
    keeps the caller's user.
    """

    argv: list[str]
    scratch: str
    read_only: list[str]
    writable: list[str]
    nodes: list[str]
    rlimits: dict[str, int]
    uid: int | None
    groups: list[int]
    keep_search: bool
    landlock: bool
    filter: str
    status_fd: int
    supervisor: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def config_for(
    argv: Sequence[str], policy: SandboxPolicy, uid: int | None, scratch: Path, status_fd: int, level: SandboxLevel
) -> Config:
    """Translate a policy for `confine`. Raises SandboxError if a path lies where the job's user can't reach it.

    Within bubblewrap's namespaces nothing else is visible and all of it can be reached, so no path is named.
    """
    devices = device_binds(policy.devices, node=policy.device_node if level is SandboxLevel.BUBBLEWRAP else "")
    system = (*SYSTEM_PATHS, *SYSTEM_LINKS, *HARDWARE_PATHS, *PROCESS_FILES)
    config = Config(
        argv=list(argv),
        scratch=str(scratch),
        read_only=[*system, *map(str, policy.read_only), *map(str, devices.read_only)],
        writable=[str(scratch), *map(str, policy.writable)],
        nodes=[*DEVICE_FILES, *map(str, devices.nodes)],
        rlimits=rlimits(policy),
        uid=uid,
        groups=list(devices.groups),
        keep_search=False,
        landlock=level is SandboxLevel.LANDLOCK,
        filter=filter_program(policy.devices, local_sockets=policy.local_sockets).hex(),
        status_fd=status_fd,
        supervisor=os.getpid(),
    )
    if level is SandboxLevel.BUBBLEWRAP:
        return replace(config, read_only=[], writable=[], nodes=[])
    closed = [path for path in (*policy.read_only, *policy.writable, scratch) if not _open_to_all(path)]
    return replace(config, keep_search=uid is not None and bool(closed) and _may_search(closed))


def launcher_argv(config_fd: int) -> list[str]:
    """Return the command line of `confine`, in the interpreter without site packages."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("confine.py")), str(config_fd)]


def make_scratch(uid: int | None, undo: ExitStack, name: str = "") -> Path:
    """Make a directory of the job's own on the host's disk, removed by `undo`; with a name always at the same path."""
    if name:
        scratch = named_scratch(name, undo)
    else:
        scratch = new_folder("scratch-", 0o700)
        undo.callback(remove_tree, scratch)
    if uid is not None:
        os.chown(scratch, uid, uid)
    return scratch


def _open_to_all(path: Path) -> bool:
    """Return whether any user can reach `path` through the directories above it."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def _may_search(closed: Iterable[Path]) -> bool:
    """Return whether we may let the job through closed directories. Raises SandboxError if not."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:") and int(line.split()[1], 16) >> CAP_DAC_READ_SEARCH & 1:
            return True
    names = ", ".join(map(str, closed))
    raise SandboxError(f"the sandbox's user can't reach {names}: move it out of directories closed to others")
