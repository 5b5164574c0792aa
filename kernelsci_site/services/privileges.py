"""Find out how root can drop its privileges on this machine, as PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from functools import cache
from pathlib import Path

from kernelsci_site.services.part import LAUNCHER

NOBODY = 65534


@cache
def drop_method() -> str | None:
    """Return None for an ordinary user, else `namespace`, or `setuid:UID` where user namespaces are blocked."""
    if os.geteuid() != 0:
        return None
    return "namespace" if _namespace_works() else f"setuid:{_service_user()}"


def command_prefix(how: str | None) -> list[str]:
    """Return the prefix for a command that must end before this process does (initdb)."""
    if how is None:
        return []
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), "--parent", str(os.getpid()), "--signal", "9"]
    return [*launcher, "--drop-privileges", how, "--"]


def service_users() -> tuple[int, ...]:
    """Return the user ids that root may have become at an earlier start."""
    return (_service_user(), NOBODY) if os.geteuid() == 0 else ()


def hand_over(how: str | None, *folders: Path) -> None:
    """Give `folders` to the user that root becomes; does nothing in a namespace or for an ordinary user."""
    if how is None or how == "namespace":
        return
    uid = int(how.removeprefix("setuid:"))
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, -1, follow_symlinks=False)


def _namespace_works() -> bool:
    return subprocess.run([*command_prefix("namespace"), "true"], capture_output=True, check=False).returncode == 0


def _service_user() -> int:
    try:
        return pwd.getpwnam("postgres").pw_uid
    except KeyError:
        return NOBODY
