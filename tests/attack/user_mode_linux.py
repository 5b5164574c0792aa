"""Run a program under a Linux kernel of its own, with control groups of version 2, on this machine's files.

User-mode Linux is a kernel that runs as a program of this user (Debian package user-mode-linux). Its root is this
machine's root, read only, with /tmp, /run and /dev/shm in memory. It needs neither root nor /dev/kvm.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

KERNEL = shutil.which("linux.uml")
MEMORY = "2G"
_ENDED = "ended with status "
_INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {variables}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
cd {folder}
mount -t tmpfs -o size=1g tmpfs /tmp
{command}
echo "{ended}$?"
echo o > /proc/sysrq-trigger
sleep 60
"""


def run_under_own_kernel(
    command: Sequence[str], folder: Path, scratch: Path, variables: Mapping[str, str], timeout_s: float
) -> tuple[int | None, str]:
    """Run a command in a folder, and return its status, or None if it did not end, and all that was printed.

    Raises FileNotFoundError where there is no such kernel.
    """
    if KERNEL is None:
        raise FileNotFoundError("linux.uml: install user-mode-linux")
    init = scratch / "init"
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    init.write_text(
        _INIT.format(variables=words, folder=shlex.quote(str(folder)), command=shlex.join(command), ended=_ENDED)
    )
    init.chmod(0o755)
    booted = subprocess.run(
        [KERNEL, f"mem={MEMORY}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}",
         "con=null", "con0=fd:0,fd:1", "quiet"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        # The kernel keeps its memory in a file there.
        env={**os.environ, "TMPDIR": "/dev/shm"}, timeout=timeout_s, check=False,
    )  # fmt: skip
    said = [line for line in booted.stdout.splitlines() if line.strip().startswith(_ENDED)]
    return (int(said[-1].strip().removeprefix(_ENDED)) if said else None), booted.stdout
