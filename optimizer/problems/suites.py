"""Read a suite from a path: KernelBench levels, kernelbench.com's hard problems, GPU MODE directories, our own.

Reading executes nothing. KernelBench problems are then traced in processes of their own, which gives their C signature
and their footprint; references run only where that is asked for.
"""

from __future__ import annotations

import re
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.actions.suite import NewEntry, NewSuite, do_store_suite
from optimizer.models import Suite
from optimizer.problems.importing import import_finding
from runners.problems import SHIPPED, find, open_bundle, shipped
from runners.problems.base import ProblemError, Purpose
from runners.problems.commands import Finding, check
from runners.problems.filters import with_signature

SHIPPED_NAME = "shipped"
GIB = 1 << 30
_LEVEL = re.compile(r"level\d+")
_NUMBERED = re.compile(r"\d+_.+\.py")
# A licence stands at the root of its checkout, a few folders above the problems.
_FOLDERS_UP = 4
# Families and keys whose cases are looked at for the footprint, the largest hardware first.
_SIZES_OF = ("gpu", "gfx942", "sm_90", "cpu")


@dataclass(frozen=True)
class Reading:
    """Hold how a suite is read. `trace` derives signatures and footprints, `run_references` runs each reference too."""

    target: str = "cpu"
    trace: bool = True
    run_references: bool = False
    timeout_s: float = 60.0
    memory_gib: float = 6.0
    most_bytes: int | None = None


class EmptySuiteError(ValueError):
    """Report that there is no problem at a path."""


def read_suite(
    path: str, how: Reading, slug: str = "", licence: str = "", tell: Callable[[NewEntry], None] = lambda _: None
) -> tuple[Suite, bool]:
    """Import every problem at or below a path and store them as a suite. Return it and whether it is new.

    Raises EmptySuiteError.
    """
    is_shipped = path == SHIPPED_NAME
    root = SHIPPED if is_shipped else Path(path).resolve()
    if not root.exists():
        raise EmptySuiteError(f"{path}: there is no such path")
    entries = []
    for name, place in _named(root):
        entry = _entry(name, place, how)
        entries.append(entry)
        tell(entry)
    if not any(entry.version for entry in entries):
        raise EmptySuiteError(f"{path}: holds no readable problem")
    title = "Kernel Scientist" if is_shipped else _title(root)
    return do_store_suite(NewSuite(
        slug=slug or title,
        title=title,
        origin=SHIPPED_NAME if is_shipped else str(root),
        version="" if is_shipped else commit_of(root),
        licence=licence or ("Apache License 2.0" if is_shipped else licence_of(root)),
        entries=entries,
    ))  # fmt: skip


def licence_of(root: Path) -> str:
    """Return the first line of the nearest licence file at or above a path, or that there is none."""
    folder = root if root.is_dir() else root.parent
    for place in (folder, *folder.parents[:_FOLDERS_UP]):
        for found in sorted(place.glob("LICEN[CS]E*")):
            lines = found.read_text(encoding="utf-8", errors="replace")[:2000].splitlines()
            return next((line.strip() for line in lines if line.strip()), "")[:120]
    return "no licence file found"


def commit_of(root: Path) -> str:
    """Return the commit of the checkout that a path is in, empty where it is in none."""
    folder = root if root.is_dir() else root.parent
    try:
        told = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def _named(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every problem, and of numbered files beside KernelBench problems that are none."""
    if root == SHIPPED:
        yield from ((name, Path(name)) for name in shipped())
        return
    found = list(find(root))
    folders = {path.parent for path in found if path.is_file()}
    # `find` passes over what is no problem; in a level, a numbered file without a model is a broken one.
    broken = [
        path
        for folder in folders
        for path in folder.iterdir()
        if _NUMBERED.fullmatch(path.name) and path not in found
    ]
    for path in (*found, *sorted(broken)):
        yield _name(root, path), path


def _name(root: Path, path: Path) -> str:
    relative = path.relative_to(root) if path != root else Path(path.name)
    name = str(relative.with_suffix("") if path.is_file() else relative)
    # A level's own folder belongs to the name: its numbers alone mean something else in every level.
    return f"{root.name}/{name}" if _LEVEL.fullmatch(root.name) else name


def _title(root: Path) -> str:
    parts = root.parts[-2:] if _LEVEL.fullmatch(root.name) or root.name.startswith("problems") else root.parts[-1:]
    return " ".join(parts)


def _entry(name: str, path: Path, how: Reading) -> NewEntry:
    """Import one problem, unless its footprint is above the limit: it is then named with its footprint."""
    options = Namespace(run_references=how.run_references, target=how.target, timeout_s=how.timeout_s,
                        memory_gib=how.memory_gib)  # fmt: skip
    found: list[Finding] = check([str(path)], options, report=lambda _: None)
    if not found or found[0].bundle is None:
        complaints = found[0].complaints if found else ("not a problem",)
        return NewEntry(name, complaint="; ".join(complaints) or "cannot be read")
    finding = found[0]
    if how.trace and not how.run_references:
        finding = replace(finding, bundle=with_signature(found[0].bundle, how.timeout_s))
    footprint = footprint_bytes(finding)
    if how.most_bytes is not None and footprint is not None and footprint > how.most_bytes:
        told = (
            f"left out: one call touches {footprint / GIB:.3g} GiB, above the limit of {how.most_bytes / GIB:.3g}"
        )
        return NewEntry(name, complaint=told, footprint_bytes=footprint)
    imported = import_finding(finding, how.target)
    if imported.version is None:
        return NewEntry(name, complaint="; ".join(imported.finding.complaints) or "cannot be stored")
    return NewEntry(name, imported.version, footprint_bytes=footprint)


def footprint_bytes(finding: Finding) -> int | None:
    """Return the bytes that one call of the largest timed case touches, or None where reading does not tell."""
    if finding.bundle is None:
        return None
    try:
        problem = open_bundle(finding.bundle)
        for target in _SIZES_OF:
            cases = problem.cases(target, Purpose.BENCHMARK)
            sizes = [work.bytes for case in cases if (work := problem.work(case)) is not None]
            if sizes:
                return int(max(sizes))
    except ProblemError:
        return None
    return None
