"""A launcher of a few lines: `python -I -S leash.py --parent PID --signal N [--unroot HOW] -- COMMAND…`.

The started part must not outlive its supervisor, not even one that was killed outright, so the kernel is asked to
send it a signal at the parent's death. This has to happen between fork and exec, and after any change of user,
which wipes the wish; hence a program of its own. Standard library only, started without site-packages (20 ms).

`--unroot namespace`: root becomes user 65534 of a fresh user namespace; files keep their owner, nothing is chowned.
`--unroot setuid:UID`: root becomes UID; the caller has chowned what it needs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def leave_root(how: str) -> None:
    """Stop being root in the way named; see the module's docstring."""
    if how == "namespace":
        uid, gid = os.getuid(), os.getgid()
        _call("unshare", CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{NOBODY} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{NOBODY} {gid} 1")
        return
    uid = int(how.removeprefix("setuid:"))
    os.setgroups([])
    os.setgid(uid if uid == NOBODY else _group_of(uid))
    os.setuid(uid)


def _group_of(uid: int) -> int:
    import pwd

    return pwd.getpwuid(uid).pw_gid


def main() -> None:
    """Leave root, tie this process to its parent, become the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--unroot")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.unroot:
        leave_root(options.unroot)
    _call("prctl", PR_SET_PDEATHSIG, options.signal)
    if os.getppid() != options.parent:
        sys.exit("the supervisor is gone")
    os.execvp(options.command[0], options.command)  # noqa: S606 - a list, no shell


if __name__ == "__main__":
    main()
