"""Provide the folder of the product's own in which jobs work on the host's disk.

The temporary directory is shared: whoever is on the machine can make names there that look like ours, and change what
lies below a name while it is swept. So everything that a job leaves on the disk lies in one directory that belongs to
us and that nobody else may write to. Its entries are named after their supervisor (see `supervisor`), or are named
scratch directories (see `scratch`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runners.sandbox.base import SandboxError
from runners.sandbox.removal import remove_tree
from runners.sandbox.supervisor import supervisor_name
from runners.state import is_own, state_dir

# A sandbox's user may pass through, and may neither list nor change it.
MODE = 0o711


def work_root() -> Path:
    """Return the directory, made if it is missing. Raises SandboxError if none can be had.

    It lies in the temporary directory. If somebody else was there first, it lies in the state folder.
    """
    for parent in (Path(tempfile.gettempdir()), state_dir()):
        place = parent / f"kernelsci-work-{os.geteuid()}"
        with suppress(FileExistsError):
            place.mkdir(mode=MODE)
        if is_own(place):
            # The umask may have narrowed it.
            place.chmod(MODE)
            return place
    raise SandboxError(f"{place} is not a directory of this user's own: remove it")


def new_folder(purpose: str, mode: int = 0o755) -> Path:
    """Make an empty folder, by default one that a sandbox's user may read. `remove_tree` removes it."""
    folder = Path(tempfile.mkdtemp(prefix=f"{supervisor_name()}-{purpose}", dir=work_root()))
    folder.chmod(mode)
    return folder


@contextmanager
def work_folder(purpose: str) -> Iterator[Path]:
    """Make a folder as `new_folder` does, for the block. What is left in it never makes its removal fail."""
    folder = new_folder(purpose)
    try:
        yield folder
    finally:
        remove_tree(folder)
