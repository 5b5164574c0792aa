"""Cache builds by content hash in the state directory: the artefact and its report, also of failed builds."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path

from runners.job import BuildReport
from runners.sandbox import remove_tree
from runners.state import state_dir
from runners.wire import WireError, dumps, loads

# Builds are small, but a search makes thousands; beyond this many of one kind, the oldest tenth goes.
MOST_ENTRIES = 5000
# Libraries have some ten kilobytes, but a hostile source can make one of 256 MiB.
MOST_BYTES = 4 << 30
# What a log says where the same source may build the next time: a limit depends on the machine's load.
OF_THE_MACHINE = ("the compiler was stopped", "No space left on device")


class BuildCache:
    """Store one build.

    An entry is written whole and renamed into place, so that a reader never sees half of one. `most_bytes` limits all
    artefacts of that kind together: the entries that were fetched longest ago go first.
    """

    def __init__(self, kind: str, key: str, most_bytes: int = MOST_BYTES) -> None:
        self._entry = state_dir("builds", kind) / key
        self._most_bytes = most_bytes

    def fetch(self, artefact: Path) -> BuildReport | None:
        """Copy the artefact to `artefact` and return the report, marked as cached; None where there is no entry."""
        try:
            # The time stamp is what makes pruning least-recently-used.
            os.utime(self._entry)
            report = loads(BuildReport, (self._entry / "report.json").read_text())
            if report.ok:
                shutil.copyfile(self._entry / "artefact", artefact)
                artefact.chmod(0o755)
        except (OSError, WireError):
            return None
        if is_of_the_machine(report):
            remove_tree(self._entry)  # an older version kept it
            return None
        return dataclasses.replace(report, cached=True)

    def keep(self, artefact: Path, report: BuildReport) -> None:
        """Store an entry; whoever was first wins. A failure of the machine is not kept."""
        if is_of_the_machine(report):
            return
        folder = Path(tempfile.mkdtemp(dir=self._entry.parent))
        (folder / "report.json").write_text(dumps(report))
        if report.ok:
            shutil.copyfile(artefact, folder / "artefact")
        try:
            # Renaming onto an entry that another process stored meanwhile fails, and its entry is as good.
            folder.rename(self._entry)
        except OSError:
            remove_tree(folder)
        self._prune()

    def _prune(self) -> None:
        entries = [entry for entry in os.scandir(self._entry.parent) if entry.is_dir()]
        entries.sort(key=_used_at)
        doomed = entries[: MOST_ENTRIES // 10] if len(entries) > MOST_ENTRIES else []
        doomed += _beyond(entries[len(doomed) :], self._most_bytes)
        # Several workers prune at the same time, so an entry may be gone already.
        for entry in doomed:
            remove_tree(Path(entry.path))


def is_of_the_machine(report: BuildReport) -> bool:
    """Return whether a build failed for a reason that may be gone the next time."""
    return not report.ok and any(said in report.log for said in OF_THE_MACHINE)


def _beyond(entries: list[os.DirEntry[str]], most_bytes: int) -> list[os.DirEntry[str]]:
    """Return the oldest entries, first in the list, that must go for the others to fit; the newest stays."""
    sizes = [_entry_bytes(Path(entry.path)) for entry in entries]
    total, count = sum(sizes), 0
    while total > most_bytes and count < len(entries) - 1:
        total -= sizes[count]
        count += 1
    return entries[:count]


def _used_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _entry_bytes(entry: Path) -> int:
    try:
        return sum(file.stat().st_size for file in entry.iterdir())
    except OSError:
        return 0
