"""Provide a file system that is small enough to be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILLING = ".filling"


@contextmanager
def mounted(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a tmpfs of that size on `folder` where we are allowed to; else yield `folder` as it is."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "kernelsci-spool", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path) -> bool:
    """Take all the room there is. False where the folder is no file system of its own: somebody needs that disk."""
    if not folder.is_mount():
        return False
    with suppress(OSError), (folder / FILLING).open("wb", buffering=0) as file:
        while file.write(b"\0" * 65_536):
            pass
    return True


def free(folder: Path) -> None:
    """Give the room back."""
    (folder / FILLING).unlink(missing_ok=True)
