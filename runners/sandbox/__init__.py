"""Run untrusted code in a sandbox. `base` defines the interface; `run`, `spawn` and `probe` are here."""

from __future__ import annotations

from collections.abc import Sequence

from runners.sandbox.base import (
    Completed,
    Devices,
    KillReason,
    ResourceLimits,
    SandboxError,
    SandboxLevel,
    SandboxPolicy,
    Usage,
)
from runners.sandbox.launch import can_be_forked, prepare, server_of
from runners.sandbox.orphans import sweep_orphans
from runners.sandbox.paths import PACKAGE, command_of, python_paths, share
from runners.sandbox.probe import ProbeReport, allowed_level, probe, probe_report, why_not_forked
from runners.sandbox.process import Sandboxed
from runners.sandbox.removal import remove_tree
from runners.sandbox.results import ResultFileError, read_result_file
from runners.sandbox.workspace import new_folder, work_folder

__all__ = [
    "PACKAGE",
    "Completed",
    "Devices",
    "KillReason",
    "ProbeReport",
    "ResourceLimits",
    "ResultFileError",
    "SandboxError",
    "SandboxLevel",
    "SandboxPolicy",
    "Sandboxed",
    "Usage",
    "command_of",
    "new_folder",
    "probe",
    "probe_report",
    "python_paths",
    "read_result_file",
    "remove_tree",
    "run",
    "share",
    "spawn",
    "sweep_orphans",
    "why_not_forked",
    "work_folder",
]


def spawn(
    argv: Sequence[str],
    policy: SandboxPolicy,
    pass_fds: Sequence[int] = (),
    *,
    stdin: bytes | None = None,
    level: SandboxLevel | None = None,
    preloaded: Sequence[str] = (),
) -> Sandboxed:
    """Start `argv` (an absolute path, or a name looked up in PATH) under `policy` and return it alive.

    `level` overrides what the machine does best. If `argv` is a command line of `python -I`, it is forked from a
    process that has imported the modules named by `preloaded`, where that works. Raises SandboxError when the sandbox
    can't be had.
    """
    at = allowed_level(level)
    forks = preloaded and can_be_forked(argv, pass_fds) and why_not_forked(at) is None
    server = server_of(policy, preloaded) if forks else None
    return Sandboxed(prepare(at, argv, policy, pass_fds, server), policy, stdin)


def run(
    argv: Sequence[str],
    policy: SandboxPolicy,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
    *,
    level: SandboxLevel | None = None,
    preloaded: Sequence[str] = (),
) -> Completed:
    """Run `argv` to its end, or to the first limit it meets, started as by `spawn`.

    How it ended is data; SandboxError means that the sandbox could not be set up.
    """
    return spawn(argv, policy, pass_fds, stdin=stdin, level=level, preloaded=preloaded).outcome()
