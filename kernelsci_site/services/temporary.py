"""Check the folder for temporary files, in which sandboxes work and builds are loaded."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelsci_site.services.var import UnwritableFolderError

NEEDED_MB = 100  # the builds of a few kernels at once; none works where there is no room
WAY_OUT = "set TMPDIR to another folder, for example TMPDIR=$HOME/tmp"


def check_temporary_folder() -> None:
    """Raise `UnwritableFolderError` unless there is room, and a program can be written there and run, so that no build
    fails later.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="kernelsci-trial-") as folder:
            if not _runs(Path(folder) / "trial"):
                raise UnwritableFolderError(f"{tempfile.gettempdir()} is mounted noexec: {WAY_OUT}")
            free_mb = shutil.disk_usage(folder).free // 1_000_000
    except OSError as error:
        raise UnwritableFolderError(f"no folder for temporary files can be written ({error}): {WAY_OUT}") from error
    if free_mb < NEEDED_MB:
        raise UnwritableFolderError(
            f"{free_mb} MB are free in {tempfile.gettempdir()}, {NEEDED_MB} MB are needed: free some, or {WAY_OUT}"
        )


def _runs(trial: Path) -> bool:
    trial.write_text("#!/bin/sh\n")
    trial.chmod(0o700)
    try:
        return subprocess.run([trial], check=False).returncode == 0
    except PermissionError:
        return False
