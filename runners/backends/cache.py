"""Builds by content hash: the artefact and its report, in the state directory. Failed builds are kept too."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

from runners.harness.state import state_dir
from runners.job import BuildReport
from runners.wire import WireError, dumps, loads

MOST_ENTRIES = 5000


class BuildCache:
    """One entry. Written whole and renamed into place, so that a reader never sees half of one."""

    def __init__(self, kind: str, key: str) -> None:
        self._entry = state_dir("builds", kind) / key

    def fetch(self, artefact: Path) -> BuildReport | None:
        """Copy the artefact to `artefact` and return the report, marked as cached; None where there is no entry."""
        try:
            report = loads(BuildReport, (self._entry / "report.json").read_text())
            if report.ok:
                shutil.copyfile(self._entry / "artefact", artefact)
                artefact.chmod(0o755)
        except (OSError, WireError):
            return None
        return dataclasses.replace(report, cached=True)

    def keep(self, artefact: Path, report: BuildReport) -> None:
        """Store an entry; whoever was first wins. A build that was stopped by a limit is not kept."""
        if not report.ok and "the compiler was stopped" in report.log:
            return
        folder = Path(tempfile.mkdtemp(dir=self._entry.parent))
        (folder / "report.json").write_text(dumps(report))
        if report.ok:
            shutil.copyfile(artefact, folder / "artefact")
        try:
            folder.rename(self._entry)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
        self._prune()

    def _prune(self) -> None:
        entries = [entry for entry in os.scandir(self._entry.parent) if entry.is_dir()]
        if len(entries) <= MOST_ENTRIES:
            return
        for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime)[: MOST_ENTRIES // 10]:
            with contextlib.suppress(OSError):
                shutil.rmtree(entry.path)
