"""Define what a sandbox is asked and what it answers. The modules beside it implement the levels.

    from runners.sandbox import ResourceLimits, SandboxPolicy, probe, run, spawn

    policy = SandboxPolicy(read_only=(*python_paths(), job_dir), limits=ResourceLimits(wall_s=10))
    done = run([sys.executable, "-I", str(job_dir / "kernel.py")], policy)

Inside, every path keeps its name: what is bound is bound where it lies, so that the same command works at every
level. `/usr` and the dynamic linker's cache are always readable; the working directory, TMPDIR and HOME are a private
scratch directory that vanishes with the process. Nothing of the caller's environment is inherited, there is no
network, and no file descriptor but 0–2 and `pass_fds` stays open.

Standard library only; Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

# An environment variable rather than a setting: only the administrator of a worker can set it.
ALLOW_UNSANDBOXED = "KERNELSCI_ALLOW_UNSANDBOXED"
FORCED_LEVEL = "KERNELSCI_SANDBOX"


class SandboxError(RuntimeError):
    """Report that the sandbox could not be set up or must not be used.

    The machine or the caller is the cause, never the kernel. The message says what to change.
    """


class SandboxLevel(StrEnum):
    """Rank how firmly a machine can confine a process, firmest first. The level is stored with every result.

    bubblewrap: own mount, process, network and IPC namespaces, seccomp, limits.
    landlock: own user if started as root, Landlock, seccomp, limits; `landlock` lists what it leaves open.
    rlimits_only: seccomp and limits, files are open; needs KERNELSCI_ALLOW_UNSANDBOXED=1.
    none: a plain process; needs KERNELSCI_ALLOW_UNSANDBOXED=1.
    """

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    RLIMITS_ONLY = "rlimits_only"
    NONE = "none"

    @property
    def holds(self) -> bool:
        """Return whether untrusted code may run at this level without the administrator's permission."""
        return self in (SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK)


def confinement(level: SandboxLevel, *, grouped: bool) -> str:
    """Return what is stored with results: the level, and whether a control group bounds what the job takes."""
    return f"{level.value}+cgroup" if grouped else level.value


class Devices(StrEnum):
    """Name the accelerators that a process may open."""

    NONE = "none"
    NVIDIA = "nvidia"
    AMD = "amd"


class KillReason(StrEnum):
    """Name why the supervisor ended a process. A process that ended by itself has none."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"
    CANCELLED = "cancelled"
    HOST = "host"
    """The whole machine ran short of memory; the job may not be to blame."""


@dataclass(frozen=True)
class ResourceLimits:
    """Limit what a process and its descendants may use together.

    The kernel counts `file_bytes`, `open_files` and `cpu_s` for each process alone. `memory_bytes` is resident memory
    with page tables and what sockets may hold, and includes shared memory that was passed in. `processes` counts
    threads too. `scratch_bytes` is the size of the scratch directory and the most that the writable paths may grow
    to. `output_bytes` limits standard output and error together; more ends the process. `log_bytes` of each stream
    are kept, its head and its tail.
    """

    wall_s: float = 60.0
    cpu_s: float | None = None
    memory_bytes: int = 4 << 30
    processes: int = max(256, 8 * (os.cpu_count() or 1))
    file_bytes: int = 256 << 20
    scratch_bytes: int = 256 << 20
    open_files: int = 1024
    output_bytes: int = 16 << 20
    log_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and not value > 0:
                raise SandboxError(f"{limit.name} must be positive, not {value}")


@dataclass(frozen=True)
class SandboxPolicy:
    """Describe what one process may see and do.

    `read_only` and `writable` are absolute host paths, visible under the same names; all must exist. If started as
    root, the process runs as a user of its own: a writable path is given to that user, and a read-only path must be
    readable by everybody (`share` makes it so). `env` is the whole environment, besides PATH, HOME, TMPDIR, LANG and
    USER. `device_node` is the file below /dev of the one GPU of NVIDIA's that the process may open under bubblewrap;
    without it the process may open all of them. `cpus` pins the process to these cores; with None it runs wherever the
    caller may run.

    `scratch` names the scratch directory: processes that give the same name find theirs at the same path, one at a
    time. Under bubblewrap every process finds it at the same path, even at the same time. `local_sockets` lets the
    process connect UNIX sockets of its own, as profilers do between their halves. Only bubblewrap grants it, because
    no sockets of the host are visible there. `sample_s` is how often the supervisor looks at what the process uses.
    """

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    devices: Devices = Devices.NONE
    device_node: str = ""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    cpus: frozenset[int] | None = None
    local_sockets: bool = False
    scratch: str = ""
    sample_s: float = 0.02

    def __post_init__(self) -> None:
        for path in (*self.read_only, *self.writable):
            if not path.is_absolute():
                raise SandboxError(f"{path}: the sandbox takes absolute paths only")


@dataclass(frozen=True)
class Usage:
    """Report what a live process and its descendants use now. `peak_memory_bytes` is the highest sample so far."""

    memory_bytes: int
    peak_memory_bytes: int
    cpu_s: float
    processes: int
    output_bytes: int
    wall_s: float


@dataclass(frozen=True)
class Completed:
    """Report how a sandboxed process ended.

    `exit_code` is None if `signal` is set. An exit code of 128 + n counts as signal n, as in a shell. Text is decoded
    with replacement characters, and the middle of a long stream is left out.
    """

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
        """Return whether the process ended by itself with exit code 0."""
        return self.exit_code == 0 and self.killed_reason is None


def unsandboxed_allowed() -> bool:
    """Return whether the administrator has allowed running code without a sandbox."""
    return os.environ.get(ALLOW_UNSANDBOXED) == "1"
