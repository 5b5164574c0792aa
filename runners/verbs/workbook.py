"""Keep an agent's kernels in a folder: a source file each, and beside it what the author said and what was measured.

`NAME.cpp` is a kernel (any suffix of a language) and `NAME.json` its notes. This is also what `manage.py observe`
reads, so that work that began without a site can be shown in one. Files may be written by anybody: everything is
bounded, and links are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runners import wire
from runners.job import JobResult, Source, TunableValue
from runners.verbs.errors import RefusedError
from runners.verbs.sources import SUFFIXES

NOTES = ".json"
NOTES_BYTES = 1 << 20
MAX_KERNELS = 5_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Reported:
    """Hold what somebody else measured: times in µs, speedup over the baseline, and where. It was not checked here."""

    time_us: float
    speedup: float | None = None
    device: str = ""
    how: str = ""


@dataclass(frozen=True)
class Expected:
    """Hold a hypothesis: what its author expects of the change, gains in per cent of speed."""

    title: str
    description: str = ""
    predicted_min: float | None = None
    predicted_max: float | None = None


@dataclass(frozen=True)
class Notes:
    """Hold what an author says of a kernel. `parents` are file names, the one it was derived from first."""

    title: str = ""
    report: str = ""
    parents: list[str] = field(default_factory=list)
    hypothesis: Expected | None = None
    tunables: dict[str, TunableValue] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    reported: Reported | None = None
    measured: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """Hold a kernel of a workbook by its file's name."""

    name: str
    path: Path
    notes: Notes


class Workbook:
    """Keep the kernels of one problem on one target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, source: Source, notes: Notes, result: JobResult, verdict: dict[str, Any]) -> Kept:
        """Write a kernel with its notes and verdict. Raises RefusedError for parents that are not here."""
        known = {one.name for one in self.kernels()}
        if unknown := [name for name in notes.parents if name not in known]:
            raise RefusedError(f"There is no kernel {unknown[0][:100]!r} here to be a parent.")
        if len(known) >= MAX_KERNELS:
            raise RefusedError(f"{self.folder} holds {MAX_KERNELS} kernels; begin another folder.")
        path = self._free_path(source)
        complete = replace(notes, measured=verdict, reported=_as_reported(result))
        # Notes first: an observer that sees the kernel finds what is said of it.
        path.with_suffix(NOTES).write_text(wire.dumps(complete, indent=1), encoding="utf-8")
        path.write_text(source.text, encoding="utf-8")
        return Kept(path.name, path, complete)

    def _free_path(self, source: Source) -> Path:
        """Return a path whose stem no file has, since notes are found by it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        taken = {path.stem for path in self.folder.iterdir()}
        number = next(number for number in range(1, len(taken) + 2) if f"{number:04}" not in taken)
        return self.folder / f"{number:04}{source.language.suffix}"

    def kernels(self) -> list[Kept]:
        """Return all kernels by name; notes that cannot be read count as none."""
        return [Kept(path.name, path, _notes_or_none(path)) for path in kernel_files(self.folder)]

    def named(self, name: str) -> Kept:
        """Return one kernel. Raises RefusedError."""
        found = next((one for one in self.kernels() if one.name == name), None)
        if found is None:
            raise RefusedError(f"There is no kernel {name[:100]!r} in this folder.")
        return found

    def best(self) -> Kept | None:
        """Return the correct kernel with the highest lower bound of its speedup, or None."""
        ranked = [one for one in self.kernels() if _lower_bound(one) is not None]
        return max(ranked, key=lambda one: _lower_bound(one) or 0.0, default=None)


def kernel_files(folder: Path) -> Iterator[Path]:
    """Yield the kernels' files of a folder by name. Links, folders and odd names are left out."""
    if not folder.is_dir():
        return
    taken = 0
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and _NAME.fullmatch(path.name) and not path.is_symlink() and path.is_file():
            taken += 1
            if taken > MAX_KERNELS:
                return
            yield path


def read_notes(path: Path) -> Notes:
    """Return the notes beside a kernel's file; empty ones where there are none. Raises RefusedError."""
    notes = path.with_suffix(NOTES)
    if notes.is_symlink() or not notes.is_file():
        return Notes()
    if notes.stat().st_size > NOTES_BYTES:
        raise RefusedError(f"{notes.name}: more than {NOTES_BYTES >> 10} KiB of notes")
    try:
        return wire.loads(Notes, notes.read_bytes())
    except (wire.WireError, UnicodeDecodeError) as error:
        raise RefusedError(f"{notes.name}: {error}") from error


def _notes_or_none(path: Path) -> Notes:
    try:
        return read_notes(path)
    except RefusedError:
        return Notes()


def _as_reported(result: JobResult) -> Reported | None:
    times = [case.candidate_us for case in result.cases if case.candidate_us]
    if not times or result.speedup is None:
        return None
    product = 1.0
    for time_us in times:
        product *= time_us ** (1 / len(times))
    device = str(result.environment.get("device", ""))
    return Reported(product, result.speedup.median, device, f"harness {result.harness_version}")


def _lower_bound(kept: Kept) -> float | None:
    """Return the lower bound of the speedup that the notes state, None for a kernel that did not pass."""
    measured = kept.notes.measured
    speedup = measured.get("speedup")
    if measured.get("status") != "correct" or not isinstance(speedup, dict):
        return None
    low = speedup.get("low")
    return float(low) if isinstance(low, int | float) and not isinstance(low, bool) else None
