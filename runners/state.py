"""Store what outlives an evaluation: builds, noise floors, locks."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def state_dir(*parts: str) -> Path:
    """Return a private folder below KERNELSCI_STATE, else ~/.cache/kernelsci, else the temporary directory.

    The folder is made if it is missing.
    """
    root = Path(os.environ.get("KERNELSCI_STATE") or _default())
    path = root.joinpath(*parts)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _default() -> Path:
    home = Path.home()
    # A service's user may have no home that it can write to.
    if os.access(home, os.W_OK):
        return home / ".cache" / "kernelsci"
    place = Path(tempfile.gettempdir()) / f"kernelsci-{os.getuid()}"
    if os.path.lexists(place) and not is_own(place):
        raise PermissionError(f"{place} is not a folder of this user's own: set KERNELSCI_STATE to one that is")
    return place


def is_own(place: Path) -> bool:
    """Return whether this is a folder of ours that nobody else may write to, or exchange for another."""
    try:
        found = place.lstat()
        above = [parent.stat() for parent in place.absolute().parents]
    except OSError:
        return False
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
    # Whoever may write to a folder above can rename what lies there, unless the sticky bit says that only owners may.
    kept = (not one.st_mode & _OTHERS_WRITE or bool(one.st_mode & stat.S_ISVTX) for one in above)
    return mine and all(kept) and all(one.st_uid in (0, os.geteuid()) for one in above)


def write_json(path: Path, value: Any) -> None:
    """Replace a file atomically: readers see the old text or the new, never half of it."""
    # In the same folder, because a rename is atomic within one file system only.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as handle:
        json.dump(value, handle)
    Path(handle.name).replace(path)


def read_json(path: Path) -> Any | None:
    """Return the value, or None if the file is missing or not JSON."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
