"""Read a file that hostile code wrote."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class ResultFileError(ValueError):
    """Report that a file is missing or is not the plain file it should be. The message says in what way."""


def read_result_file(directory: Path, name: str, max_bytes: int, uid: int | None = None) -> bytes:
    """Return the content of `directory/name`, written by the sandbox's user `uid` (None: the caller's own).

    Raises ResultFileError for a name with a path in it, a symbolic link, a second hard link, a FIFO, socket or
    device, another owner's file, and more than `max_bytes`.
    """
    if Path(name).name != name or name in ("", ".."):
        raise ResultFileError(f"{name!r} is not a file name")
    folder = _open(directory, os.O_DIRECTORY)
    try:
        # Opening a FIFO without O_NONBLOCK would wait for a writer for ever.
        fd = _open(Path(name), os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _check(name, os.fstat(fd), max_bytes, os.geteuid() if uid is None else uid)
        # The size that was checked may have grown since, so never read more than one byte beyond the limit.
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(fd)
    if len(content) > max_bytes:
        raise ResultFileError(f"{name}: grew past {max_bytes} bytes while it was read")
    return content


def _open(path: Path, flags: int, dir_fd: int | None = None) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | flags, dir_fd=dir_fd)
    except OSError as error:
        raise ResultFileError(f"{path}: {error.strerror}") from error


def _check(name: str, found: os.stat_result, max_bytes: int, uid: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ResultFileError(f"{name}: not a regular file")
    if found.st_nlink != 1:
        raise ResultFileError(f"{name}: has {found.st_nlink} links")
    if found.st_uid != uid:
        raise ResultFileError(f"{name}: belongs to user {found.st_uid}, not {uid}")
    if found.st_size > max_bytes:
        raise ResultFileError(f"{name}: {found.st_size} bytes, more than {max_bytes}")
