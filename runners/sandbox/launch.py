"""Translate a policy into what must be started: a command line, its environment, descriptors, and what to undo.

Every level reports through the same status pipe and in bubblewrap's format: one JSON object per line. `child-pid` names
the program, or the first process of its namespaces, when it is being started; `exit-code` when it has ended. A launcher
that exits without `exit-code` failed to set up the sandbox. Launchers of ours add `cpu-ms`, what everything took, and
`waiting-pid`, a process that only waits for one in a process namespace.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from runners.sandbox.account import own_account
from runners.sandbox.base import Devices, SandboxError, SandboxLevel, SandboxPolicy
from runners.sandbox.bubblewrap import SCRATCH, bubblewrap_argv, limiting_argv, namespaces_argv
from runners.sandbox.cgroup import Group, own_group
from runners.sandbox.fork_server import MOST_PASSED, ForkConfig, ForkServer, server_for
from runners.sandbox.landlock import config_for, launcher_argv, make_scratch
from runners.sandbox.seccomp import filter_program

NVIDIA_NEEDS_BUBBLEWRAP = (
    "NVIDIA's driver binds a socket to a file name when it starts, which Landlock refuses: install bubblewrap"
)
LOCAL_SOCKETS_NEED_BUBBLEWRAP = "UNIX sockets of the host are in sight without namespaces: install bubblewrap"
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Fork:
    """Hold the server that forks a launcher, and the descriptor of what the launcher is told."""

    server: ForkServer
    config_fd: int


@dataclass
class Launch:
    """Describe a process that is ready to start.

    `status_fd` is our end of the status pipe, for reading; `fds` must be passed on. `stop_signal` asks the launcher
    to end everything; with None it ends by itself when everything below it has ended. `disk` lists the directories
    whose size is limited. `group` is the job's control group, if there are any here. With `fork`, a server forks the
    launcher and `argv` is not executed. `close` undoes all preparations.
    """

    level: SandboxLevel
    argv: list[str]
    env: dict[str, str]
    fds: tuple[int, ...] = ()
    status_fd: int | None = None
    stop_signal: signal.Signals | None = signal.SIGKILL
    uid: int | None = None
    disk: tuple[Path, ...] = ()
    cwd: Path = Path("/")
    started: Callable[[], None] = lambda: None
    group: Group | None = None
    fork: Fork | None = None
    _undo: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        self._undo.close()


def prepare(
    level: SandboxLevel,
    argv: Sequence[str],
    policy: SandboxPolicy,
    pass_fds: Sequence[int],
    server: ForkServer | None = None,
) -> Launch:
    """Prepare a launch at a level. Raises SandboxError if the policy asks for what the level can't give.

    With a server, `argv` is a command line that `can_be_forked`, and is forked from it.
    """
    _check_paths(policy)
    with ExitStack() as undo:
        if server is not None:
            launch = _prepare_forked(server, level, argv, policy, pass_fds, undo)
        else:
            launch = _PREPARERS[level](argv, policy, undo)
            if (group := own_group(policy.limits, undo)) is not None:
                launch.group, launch.argv = group, group.joining(launch.argv)
            launch.fds += tuple(pass_fds)
        launch._undo = undo.pop_all()
        return launch


def can_be_forked(argv: Sequence[str], pass_fds: Sequence[int] = ()) -> bool:
    """Return whether a command line is `python -I` with a script or `-c`, of this interpreter, with few descriptors."""
    isolated = list(argv[:2]) == [sys.executable, "-I"] and len(pass_fds) <= MOST_PASSED
    return isolated and len(argv) > 2 and (argv[2] == "-c" or not argv[2].startswith("-"))


def server_of(policy: SandboxPolicy, preloaded: Sequence[str]) -> ForkServer | None:
    """Return a server from which programs under this policy can be forked with these modules, or None."""
    # The scratch directory is in none of the variables that tell servers apart.
    return server_for(preloaded, environment(policy, SCRATCH), _cores(policy))


def _cores(policy: SandboxPolicy) -> frozenset[int]:
    return policy.cpus or frozenset(os.sched_getaffinity(0))


def _check_paths(policy: SandboxPolicy) -> None:
    for path in (*policy.read_only, *policy.writable):
        if not path.exists():
            raise SandboxError(f"{path} does not exist, so the sandbox can't show it")


def _prepare_bubblewrap(argv: Sequence[str], policy: SandboxPolicy, undo: ExitStack) -> Launch:
    uid = _own_uid(policy, undo)
    filter_fd = _sealed_file(filter_program(policy.devices, local_sockets=policy.local_sockets), undo)
    status_read, status_write = _pipe(undo)
    return Launch(
        level=SandboxLevel.BUBBLEWRAP,
        argv=bubblewrap_argv(argv, policy, uid, filter_fd=filter_fd, status_fd=status_write),
        env=environment(policy, SCRATCH),
        fds=(filter_fd, status_write),
        status_fd=status_read,
        uid=uid,
        disk=policy.writable,
        started=lambda: os.close(status_write),
    )


def _own_uid(policy: SandboxPolicy, undo: ExitStack) -> int | None:
    """Take a user id if we are root, and give it the writable paths. Raises SandboxError for unreadable paths."""
    account = own_account()
    if account is None:
        return None
    undo.callback(account.close)
    for path in policy.read_only:
        _check_readable(path)
    for path in policy.writable:
        # Never through a link, which could give away any file of root's.
        os.chown(path, account.uid, account.uid, follow_symlinks=False)
    return account.uid


def _check_readable(path: Path) -> None:
    needed = 0o005 if path.is_dir() else 0o004
    if path.stat().st_mode & needed != needed:
        raise SandboxError(f"{path} is not readable by everybody, so the sandbox's user can't read it")


def environment(policy: SandboxPolicy, scratch: Path) -> dict[str, str]:
    """Return all the variables that a sandboxed process gets."""
    base = {"PATH": DEFAULT_PATH, "HOME": str(scratch), "TMPDIR": str(scratch), "LANG": "C.UTF-8"}
    return {**base, "USER": "sandbox", "LOGNAME": "sandbox", **policy.env}


def sealed_input(data: bytes) -> int:
    """Return a descriptor at the start of `data`, which nobody can change or grow."""
    fd = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    # A descriptor that the job might inherit must not let it rewrite its own filter or configuration.
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def _sealed_file(data: bytes, undo: ExitStack) -> int:
    fd = sealed_input(data)
    undo.callback(os.close, fd)
    return fd


def _pipe(undo: ExitStack) -> tuple[int, int]:
    # `undo` closes the reading end only; `Launch.started` closes the other once the launcher holds it.
    reading, writing = os.pipe2(os.O_CLOEXEC)
    undo.callback(os.close, reading)
    return reading, writing


def _prepare_forked(
    server: ForkServer,
    level: SandboxLevel,
    argv: Sequence[str],
    policy: SandboxPolicy,
    pass_fds: Sequence[int],
    undo: ExitStack,
) -> Launch:
    """Prepare a launch of `python -I` with the rest of `argv`, forked from a server."""
    _check_level(level, policy)
    uid = _own_uid(policy, undo)
    within = level is SandboxLevel.BUBBLEWRAP
    scratch = SCRATCH if within else make_scratch(uid, undo, policy.scratch)
    status_read, status_write = _pipe(undo)
    config = config_for(argv[2:], policy, uid, scratch, status_write, level)
    group = own_group(policy.limits, undo)
    forked = ForkConfig(
        **vars(config),
        bubblewrap=namespaces_argv(policy, as_root=uid is not None) if within else None,
        limiting=limiting_argv(policy) if within else [],
        env=environment(policy, scratch),
        descriptors=[0, 1, 2, status_write, *pass_fds],
        own=list(pass_fds),
        group="" if group is None else str(group.path / "cgroup.procs"),
        cpus=sorted(_cores(policy)),
    )
    return Launch(
        level=level,
        argv=[],
        env={},
        fds=(status_write, *pass_fds),
        status_fd=status_read,
        # The end of the namespaces' init ends all that is in them, and the launcher then reaps it. Without namespaces,
        # only the launcher knows what it has adopted.
        stop_signal=None if within else signal.SIGTERM,
        uid=uid,
        disk=policy.writable if within else (scratch, *policy.writable),
        started=lambda: os.close(status_write),
        group=group,
        fork=Fork(server, _sealed_file(forked.encode(), undo)),
    )


def _check_level(level: SandboxLevel, policy: SandboxPolicy) -> None:
    """Raise SandboxError if the policy asks for what only namespaces give."""
    if level is SandboxLevel.BUBBLEWRAP:
        return
    if level is SandboxLevel.LANDLOCK and policy.devices is Devices.NVIDIA:
        raise SandboxError(NVIDIA_NEEDS_BUBBLEWRAP)
    if policy.local_sockets:
        raise SandboxError(LOCAL_SOCKETS_NEED_BUBBLEWRAP)


def _prepare_confined(argv: Sequence[str], policy: SandboxPolicy, undo: ExitStack, *, landlock: bool) -> Launch:
    level = SandboxLevel.LANDLOCK if landlock else SandboxLevel.RLIMITS_ONLY
    _check_level(level, policy)
    uid = _own_uid(policy, undo)
    scratch = make_scratch(uid, undo, policy.scratch)
    status_read, status_write = _pipe(undo)
    config = config_for(argv, policy, uid, scratch, status_write, level)
    config_fd = _sealed_file(config.encode(), undo)
    return Launch(
        level=level,
        argv=launcher_argv(config_fd),
        env=environment(policy, scratch),
        fds=(config_fd, status_write),
        status_fd=status_read,
        stop_signal=signal.SIGTERM,
        uid=uid,
        disk=(scratch, *policy.writable),
        started=lambda: os.close(status_write),
    )


def _prepare_landlock(argv: Sequence[str], policy: SandboxPolicy, undo: ExitStack) -> Launch:
    return _prepare_confined(argv, policy, undo, landlock=True)


def _prepare_rlimits_only(argv: Sequence[str], policy: SandboxPolicy, undo: ExitStack) -> Launch:
    return _prepare_confined(argv, policy, undo, landlock=False)


def _prepare_none(argv: Sequence[str], policy: SandboxPolicy, undo: ExitStack) -> Launch:
    scratch = make_scratch(None, undo, policy.scratch)
    return Launch(
        level=SandboxLevel.NONE,
        argv=list(argv),
        env=environment(policy, scratch),
        disk=(scratch, *policy.writable),
        cwd=scratch,
    )


_PREPARERS: dict[SandboxLevel, Callable[[Sequence[str], SandboxPolicy, ExitStack], Launch]] = {
    SandboxLevel.BUBBLEWRAP: _prepare_bubblewrap,
    SandboxLevel.LANDLOCK: _prepare_landlock,
    SandboxLevel.RLIMITS_ONLY: _prepare_rlimits_only,
    SandboxLevel.NONE: _prepare_none,
}
