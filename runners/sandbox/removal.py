"""Remove what hostile code has left: deep trees, closed directories, links, names of any length.

Everything is addressed by an open descriptor and a name in it (openat(2)), never by a path: paths end at PATH_MAX, and
a directory in the middle of one may become a link while we walk. Trees are flattened instead of descended: what lies
in a subdirectory moves up to the top, so that neither the stack nor the open descriptors grow with the depth, and each
directory is moved once. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> bool:
    """Remove a directory with everything in it, following no link. Return whether it is gone. Never raises."""
    try:
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return not os.path.lexists(directory)
    try:
        return remove_at(parent, directory.name)
    finally:
        os.close(parent)


def remove_at(parent: int, name: str) -> bool:
    """Remove the entry of that name in an open directory as `remove_tree` does."""
    try:
        top = open_directory(parent, name)
    except OSError:
        return _unlinked(parent, name)
    try:
        _empty(top)
    finally:
        os.close(top)
    return _removed(parent, name)


def empty_directory(directory: int) -> None:
    """Remove everything in an open directory and keep the directory. Never raises."""
    _empty(directory)


def open_directory(parent: int, name: str) -> int:
    """Open a directory in another one, following no link; one that is closed to us is opened first.

    Raises OSError for anything else.
    """
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except PermissionError:
        place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # By the descriptor, since chmod(2) would follow a link that took the name's place.
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 - a descriptor, no path
        finally:
            os.close(place)
        return os.open(name, DIRECTORY, dir_fd=parent)


def _empty(top: int) -> None:
    """Unlink files and lift subdirectories' content to the top until nothing is left or nothing more can be removed."""
    device = os.fstat(top).st_dev
    stuck: set[str] = set()
    while folders := [name for name in _files_unlinked(top) if name not in stuck]:
        for name in folders:
            _lift(top, name, device)
            if not _removed(top, name):
                stuck.add(name)


def _lift(top: int, name: str, device: int) -> None:
    """Empty a subdirectory: unlink its files, and move its own subdirectories to the top."""
    with contextlib.suppress(OSError):
        inner = open_directory(top, name)
        try:
            # Another file system that is mounted there is not ours to empty.
            if os.fstat(inner).st_dev == device:
                # A directory can be moved only by somebody who may write to it.
                os.fchmod(inner, 0o700)
                for child in _files_unlinked(inner):
                    _make_movable(inner, child)
                    # A name that nobody can foresee, since renaming onto something that is there fails.
                    os.rename(child, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
        finally:
            os.close(inner)


def _make_movable(parent: int, name: str) -> None:
    # Its entry `..` changes with the move, which takes the right to write to it (root may in any case).
    if os.geteuid() != 0:
        child = open_directory(parent, name)
        try:
            os.fchmod(child, 0o700)
        finally:
            os.close(child)


def _files_unlinked(directory: int) -> list[str]:
    """Unlink all that is no directory, and return the names of the directories."""
    folders = []
    with contextlib.suppress(OSError):
        with os.scandir(directory) as listing:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
        if entries and os.geteuid() != 0:
            os.fchmod(directory, 0o700)
        for name, is_directory in entries:
            if is_directory:
                folders.append(name)
            else:
                _unlinked(directory, name)
    return folders


def _unlinked(parent: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _removed(parent: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
