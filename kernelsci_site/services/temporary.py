"""Check the folder for temporary files, in which sandboxes work and builds are loaded."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from kernelsci_site.services.var import UnwritableFolderError

WAY_OUT = "set TMPDIR to another folder, for example TMPDIR=$HOME/tmp"


def check_temporary_folder() -> None:
    """Raise `UnwritableFolderError` unless a program can be written there and run, so that no build fails later."""
    try:
        with tempfile.TemporaryDirectory(prefix="kernelsci-trial-") as folder:
            if not _runs(Path(folder) / "trial"):
                raise UnwritableFolderError(f"{tempfile.gettempdir()} is mounted noexec: {WAY_OUT}")
    except OSError as error:
        raise UnwritableFolderError(f"no folder for temporary files can be written ({error}): {WAY_OUT}") from error


def _runs(trial: Path) -> bool:
    trial.write_text("#!/bin/sh\n")
    trial.chmod(0o700)
    try:
        return subprocess.run([trial], check=False).returncode == 0
    except PermissionError:
        return False
