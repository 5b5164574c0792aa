"""Problems: what a kernel has to compute, read from our own format, KernelBench files and GPU MODE directories.

`load` turns a shipped name or a path into a self-contained bundle; `open_bundle` turns a bundle into a Problem.
"""

from __future__ import annotations

from pathlib import Path

from runners.job import ProblemBundle
from runners.problems.base import Problem, ProblemError
from runners.problems.files import read_directory
from runners.problems.native import ENTRY, NativeProblem

SHIPPED = Path(__file__).parent / "shipped"


def shipped() -> list[str]:
    """Names of the problems that come with this package."""
    return sorted(path.name for path in SHIPPED.iterdir() if (path / ENTRY).is_file())


def load(name_or_path: str | Path) -> ProblemBundle:
    """Read a shipped problem by name, or whatever format lies at the path. Raises ProblemError."""
    name = str(name_or_path)
    path = SHIPPED / name if name in shipped() else Path(name_or_path)
    if not path.exists():
        raise ProblemError([f"{name}: neither a shipped problem ({', '.join(shipped())}) nor a path that exists"])
    bundle = _read(path)
    open_bundle(bundle)
    return bundle


def open_bundle(bundle: ProblemBundle) -> Problem:
    """The problem a bundle holds. Raises ProblemError."""
    if bundle.format == "native":
        return NativeProblem(bundle.files)
    raise ProblemError([f"{bundle.name}: unknown format {bundle.format!r}"])


def _read(path: Path) -> ProblemBundle:
    if not (path / ENTRY).is_file():
        raise ProblemError([f"{path.name}: no {ENTRY} in this directory"])
    files = read_directory(path)
    return ProblemBundle(NativeProblem(files).name, "native", ENTRY, files)
