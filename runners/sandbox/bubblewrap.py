"""Confine a process with bubblewrap: namespaces first, then limits, then the system-call filter.

Two ways in, because a user who was dropped to can't bind what lies under a directory of mode 0700 (an
interpreter under /root):
- started as root, bubblewrap mounts as root with three capabilities (setuid, setgid, setpcap) and `setpriv`
  inside then becomes the job's own user with none; new user namespaces are refused by the filter;
- started as anybody else, bubblewrap makes a user namespace without capabilities and disables further ones.

The environment is given to bubblewrap itself rather than set inside, so that its own init shows nothing else in
/proc/1/environ. `/` and `/dev` are writable until remounted, which comes after all binds.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from runners.sandbox.base import Devices, ResourceLimits, SandboxError, SandboxPolicy
from runners.sandbox.devices import DeviceBinds, device_binds
from runners.sandbox.supervisor import supervisor_name

SCRATCH = Path("/tmp")  # noqa: S108 - a private tmpfs inside the sandbox
# On merged-/usr systems these are links, on older ones directories.
SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
SYSTEM_PATHS = ("/usr", "/etc/ld.so.cache", "/etc/alternatives")
# OpenMP and torch count cores and read the topology here.
HARDWARE_PATHS = ("/sys/devices/system/cpu", "/sys/devices/system/node")


def bubblewrap_argv(
    argv: Sequence[str], policy: SandboxPolicy, uid: int | None, *, filter_fd: int, status_fd: int
) -> list[str]:
    """Return the command line that runs `argv` under `policy`, as user `uid` if the caller is root (else None)."""
    # What `setpriv` needs to become the job's user; it drops them in the same step.
    become = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")
    return [
        *namespaces_argv(policy, as_root=uid is not None),
        *(become if uid is not None else ()),
        *("--seccomp", str(filter_fd), "--json-status-fd", str(status_fd), "--"),
        *limiting_argv(policy),
        *(_become(uid, policy) if uid is not None else ()),
        *argv,
    ]


def namespaces_argv(policy: SandboxPolicy, *, as_root: bool) -> list[str]:
    """Return the command line that makes the namespaces, with all mounts and no capabilities in them."""
    return [_tool("bwrap"), *_namespaces(as_root=as_root), *_mounts(policy), "--chdir", str(SCRATCH)]


def _tool(name: str) -> str:
    # A fixed search path, so that no program of the caller's PATH is run as root.
    path = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin")
    if path is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux"
        raise SandboxError(f"{name} is missing: install the package {package}")
    return path


def _namespaces(*, as_root: bool) -> list[str]:
    shared = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    shared += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    shared += ["--hostname", supervisor_name()]
    # As any other user, bubblewrap needs a user namespace, in which a job could gain capabilities again unless further
    # ones are disabled.
    return shared if as_root else ["--unshare-user", "--disable-userns", *shared]


def _mounts(policy: SandboxPolicy) -> list[str]:
    size = str(policy.limits.scratch_bytes)
    arguments = ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", str(SCRATCH)]
    arguments += _system_mounts()
    arguments += _binds([*policy.read_only, *map(Path, HARDWARE_PATHS)], "--ro-bind-try")
    devices = _device_binds(policy)
    arguments += _binds([path for path in devices.read_only if path.parts[1] != "proc"], "--ro-bind-try")
    arguments += _binds(devices.nodes, "--dev-bind")
    arguments += _binds(policy.writable, "--bind")
    # This comes last: a bind into a read-only root would fail to make its mount point.
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/"]


def _device_binds(policy: SandboxPolicy) -> DeviceBinds:
    return device_binds(policy.devices, node=policy.device_node)


def _system_mounts() -> list[str]:
    arguments = _binds(map(Path, SYSTEM_PATHS), "--ro-bind-try")
    for name in SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    return arguments


def _binds(paths: Iterable[Path], option: str) -> list[str]:
    """Bind each path under its own name, outermost first; the directories above it may be traversed."""
    arguments: list[str] = []
    for path in sorted(set(paths)):
        for parent in reversed(path.parents[:-1]):
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += [option, str(path), str(path)]
    return arguments


def limiting_argv(policy: SandboxPolicy) -> list[str]:
    """Return what goes before a command to set its limits."""
    arguments = [f"--{name}={value}" for name, value in rlimits(policy).items()]
    return [_tool("prlimit"), *arguments]


def rlimits(policy: SandboxPolicy) -> dict[str, int]:
    """Return the limits by the names of prlimit(1), none above what the caller itself may have.

    Private memory is limited a little above the sandbox's own limit: one huge allocation then fails at once, while
    the supervisor sees and names slow growth. An accelerator's driver maps its whole address space and pins memory,
    so neither is limited there.
    """
    limits = policy.limits
    wanted = {
        "nproc": limits.processes,
        "fsize": limits.file_bytes,
        "cpu": cpu_seconds(limits),
        "core": 0,
        "nofile": limits.open_files,
    }
    # RLIMIT_DATA would count everything that an accelerator's driver maps.
    if policy.devices is Devices.NONE:
        wanted |= {"data": limits.memory_bytes + (256 << 20), "memlock": 8 << 20}
    return {name: _capped(name, value) for name, value in wanted.items()}


def cpu_seconds(limits: ResourceLimits) -> int:
    """Return the CPU limit of one process in whole seconds: as given, else all cores for the wall-clock limit."""
    return math.ceil(limits.cpu_s if limits.cpu_s is not None else limits.wall_s * (os.cpu_count() or 1))


def _capped(name: str, value: int) -> int:
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _become(uid: int, policy: SandboxPolicy) -> list[str]:
    groups = ",".join(map(str, _device_binds(policy).groups))
    return [
        _tool("setpriv"),
        *(f"--reuid={uid}", f"--regid={uid}"),
        f"--groups={groups}" if groups else "--clear-groups",
        *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"),
    ]
