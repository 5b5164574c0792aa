"""Launch a command that dies with its parent.

    python -I -S launcher.py --parent PID --signal N [--drop-privileges HOW] -- COMMAND…

A part must not outlive its supervisor, even one that was killed outright. The kernel is therefore asked to send a
signal when the parent dies (PR_SET_PDEATHSIG). This must be done between fork and exec, and after any change of user,
which clears the setting; hence a separate program. It uses the standard library only and starts without site-packages
(20 ms).

`--drop-privileges namespace`: root becomes user 65534 of a new user namespace; files keep their owner and nothing is
chowned. `--drop-privileges setuid:UID`: root becomes UID; the caller has chowned what the command needs.
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


def drop_privileges(how: str) -> None:
    """Drop root privileges in the way named; see the module's docstring."""
    if how == "namespace":
        # Read before `unshare`: in the new namespace both are unmapped.
        uid, gid = os.getuid(), os.getgid()
        _call("unshare", CLONE_NEWUSER)
        # The kernel demands this before an unprivileged process may write a group map (user_namespaces(7)).
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{NOBODY} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{NOBODY} {gid} 1")
        return
    uid = int(how.removeprefix("setuid:"))
    # Groups first, user last: after `setuid` the process may no longer change its groups.
    os.setgroups([])
    os.setgid(uid if uid == NOBODY else _group_of(uid))
    os.setuid(uid)


def _group_of(uid: int) -> int:
    import pwd

    return pwd.getpwuid(uid).pw_gid


def main() -> None:
    """Drop privileges, tie this process to its parent, and execute the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--drop-privileges")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.drop_privileges:
        drop_privileges(options.drop_privileges)
    # After dropping privileges, because a change of user clears the setting (prctl(2)).
    _call("prctl", PR_SET_PDEATHSIG, options.signal)
    # The parent may have died before the signal was requested; it would then never be sent.
    if os.getppid() != options.parent:
        sys.exit("the supervisor is gone")
    os.execvp(options.command[0], options.command)  # noqa: S606 - a list, no shell


if __name__ == "__main__":
    main()
