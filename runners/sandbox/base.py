"""What a sandbox is asked and what it answers; the ways of holding a process are in its sister modules.

    from runners.sandbox import ResourceLimits, SandboxPolicy, probe, run, spawn

    policy = SandboxPolicy(read_only=(*python_paths(), job_dir), limits=ResourceLimits(wall_s=10))
    done = run([sys.executable, "-I", str(job_dir / "kernel.py")], policy)

Inside, every path keeps its name: what is bound is bound where it lies, so that the same command works at
every level. `/usr` and the dynamic linker's cache are always readable; the working directory, TMPDIR and
HOME are a private scratch directory that vanishes with the process. Nothing of the caller's environment is
inherited, there is no network, and no file descriptor but 0–2 and `pass_fds` stays open.

Standard library only; Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

ALLOW_UNSANDBOXED = "KERNELSCI_ALLOW_UNSANDBOXED"
FORCED_LEVEL = "KERNELSCI_SANDBOX"


class SandboxError(RuntimeError):
    """The sandbox could not be set up, or may not be used: the machine's or the caller's doing, never the
    kernel's. The message says what to change."""


class SandboxLevel(StrEnum):
    """How firmly a machine can hold a process, firmest first; stored with every result.

    bubblewrap: own mount, process, network and IPC namespaces, seccomp, limits.
    landlock: own user where started as root, Landlock, seccomp, limits; holes listed in `landlock`.
    rlimits_only: seccomp and limits, files are open; needs KERNELSCI_ALLOW_UNSANDBOXED=1.
    none: a plain process; needs KERNELSCI_ALLOW_UNSANDBOXED=1."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    RLIMITS_ONLY = "rlimits_only"
    NONE = "none"

    @property
    def holds(self) -> bool:
        """True where untrusted code may run without anybody's leave."""
        return self in (SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK)


class Devices(StrEnum):
    """Which accelerators a process may open."""

    NONE = "none"
    NVIDIA = "nvidia"
    AMD = "amd"


class KillReason(StrEnum):
    """Why the supervisor ended a process. Absent when the process ended by itself."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ResourceLimits:
    """What a process and all it starts may use together, but for `file_bytes`, `open_files` and `cpu_s`,
    which the kernel counts for each process alone."""

    wall_s: float = 60.0
    cpu_s: float | None = None
    memory_bytes: int = 4 << 30
    """Resident memory, that of passed shared memory included."""
    processes: int = max(256, 8 * (os.cpu_count() or 1))
    """Processes and threads together."""
    file_bytes: int = 256 << 20
    scratch_bytes: int = 256 << 20
    """Size of the scratch directory; also the most that the writable paths may grow to."""
    open_files: int = 1024
    output_bytes: int = 16 << 20
    """Standard output and error together; more ends the process."""
    log_bytes: int = 64 << 10
    """How much of each stream is kept: its head and its tail."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and not value > 0:
                raise SandboxError(f"{limit.name} must be positive, not {value}")


@dataclass(frozen=True)
class SandboxPolicy:
    """What one process may see and do.

    `read_only` and `writable` are absolute host paths, visible under the same names; all must exist.
    Started as root, the process runs as a user of its own: a writable path is given to that user, and a
    read-only path must be readable by everybody (`share` makes it so).
    `env` is the whole environment, besides PATH, HOME, TMPDIR, LANG and USER.
    `cpus` pins the process to these cores; None leaves it where the caller may run.
    `scratch` names the scratch directory: processes that give the same name find theirs at the same path, one at a
    time. Under bubblewrap that is so for all, and at the same time.
    `local_sockets` lets it connect UNIX sockets of its own, as profilers do between their halves; under bubblewrap
    only, where no others are in sight."""

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    devices: Devices = Devices.NONE
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    cpus: frozenset[int] | None = None
    local_sockets: bool = False
    scratch: str = ""

    def __post_init__(self) -> None:
        for path in (*self.read_only, *self.writable):
            if not path.is_absolute():
                raise SandboxError(f"{path}: the sandbox takes absolute paths only")


@dataclass(frozen=True)
class Usage:
    """What a live process and all it started use now. `peak_memory_bytes` is the highest sample so far."""

    memory_bytes: int
    peak_memory_bytes: int
    cpu_s: float
    processes: int
    output_bytes: int
    wall_s: float


@dataclass(frozen=True)
class Completed:
    """How a sandboxed process ended. `exit_code` is None when `signal` is set. An exit code of 128 + n
    counts as signal n, as in a shell. Text is decoded leniently, and the middle of a long stream left out."""

    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    output_bytes: int
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    killed_reason: KillReason | None
    level: SandboxLevel

    @property
    def ok(self) -> bool:
        """True when the process ended by itself with exit code 0."""
        return self.exit_code == 0 and self.killed_reason is None


def unsandboxed_allowed() -> bool:
    """Has the administrator allowed running code that nothing holds?"""
    return os.environ.get(ALLOW_UNSANDBOXED) == "1"
