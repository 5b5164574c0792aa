"""Store what outlives an evaluation: builds, noise floors, locks."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


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
    return Path(tempfile.gettempdir()) / f"kernelsci-{os.getuid()}"


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
