"""Read problems: descriptions of what a kernel has to compute.

The formats are our own, KernelBench files, GPU MODE directories and problem directories of kernelbench.com's "hard"
benchmark. `load` turns a shipped name or a path into a self-contained bundle; `open_bundle` turns a bundle into a
Problem; `find` lists what lies below a directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from runners.job import ProblemBundle
from runners.problems import declaration, gpumode_task, kernelbench, kernelbench_hard_task
from runners.problems.base import Problem, ProblemError
from runners.problems.files import FILE_BYTES, read_directory
from runners.problems.gpumode import GpuModeProblem
from runners.problems.gpumode_task import is_gpumode_problem
from runners.problems.kernelbench_hard import KernelBenchHardProblem
from runners.problems.kernelbench_hard_task import is_hard_problem
from runners.problems.native import NativeProblem

SHIPPED = Path(__file__).parent / "shipped"


def shipped() -> list[str]:
    """Return the names of the problems that ship with this package."""
    return sorted(path.name for path in SHIPPED.iterdir() if (path / declaration.ENTRY).is_file())


def is_shipped(bundle: ProblemBundle) -> bool:
    """Return whether a bundle is, byte for byte, a problem that ships with this package."""
    return bundle.content_hash in _shipped_hashes()


@cache
def _shipped_hashes() -> frozenset[str]:
    return frozenset(_read(SHIPPED / name).content_hash for name in shipped())


def load(name_or_path: str | Path) -> ProblemBundle:
    """Read a shipped problem by name, or the problem at a path in any format. Raises ProblemError."""
    name = str(name_or_path)
    path = SHIPPED / name if name in shipped() else Path(name_or_path)
    if not path.exists():
        raise ProblemError([f"{name}: neither a shipped problem ({', '.join(shipped())}) nor a path that exists"])
    bundle = _read(path)
    open_bundle(bundle)
    return bundle


def open_bundle(bundle: ProblemBundle) -> Problem:
    """Return the problem that a bundle holds. Raises ProblemError."""
    match bundle.format:
        case "native":
            return NativeProblem(bundle.files)
        case kernelbench.FORMAT:
            return kernelbench.KernelBenchProblem(bundle)
        case gpumode_task.FORMAT:
            return GpuModeProblem(bundle)
        case kernelbench_hard_task.FORMAT:
            return KernelBenchHardProblem(bundle)
    raise ProblemError([f"{bundle.name}: unknown format {bundle.format!r}"])


def find(root: Path) -> Iterator[Path]:
    """Yield every problem at or below `root`, in any format, in the order of their paths. Links aren't followed.

    A folder that lacks one of its format's files is yielded too, so that reading it says which.
    """
    if root.is_file():
        if _is_kernelbench_file(root):
            yield root
    elif (root / declaration.ENTRY).is_file() or is_gpumode_problem(root) or is_hard_problem(root):
        yield root
    else:
        for path in sorted(root.iterdir(), key=_natural):
            # A link could lead out of the tree or back into it.
            if not path.is_symlink() and not path.name.startswith("."):
                yield from find(path)


def _read(path: Path) -> ProblemBundle:
    if path.name in (declaration.ENTRY, gpumode_task.TASK_FILE, kernelbench_hard_task.TASK_FILE):
        path = path.parent
    if (path / declaration.ENTRY).is_file():
        files = read_directory(path)
        return ProblemBundle(NativeProblem(files).name, "native", declaration.ENTRY, files)
    if is_gpumode_problem(path):
        return gpumode_task.read_gpumode(path)
    if is_hard_problem(path):
        return kernelbench_hard_task.read_kernelbench_hard(path)
    if path.is_file() and path.suffix == ".py":
        return kernelbench.read_kernelbench(path)
    if path.is_dir() and (
        several := [str(p.relative_to(path)) for _, p in zip(range(4), find(path), strict=False)]
    ):
        raise ProblemError([f"{path.name}: holds several problems; name one: {', '.join(several)} …"])
    raise ProblemError(
        [
            f"{path.name}: no {declaration.ENTRY}, no {gpumode_task.TASK_FILE}, no {kernelbench_hard_task.TASK_FILE} "
            "with reference.py and shapes.py, and not a KernelBench file (.py)"
        ]
    )


def _is_kernelbench_file(path: Path) -> bool:
    if path.suffix != ".py" or path.stat().st_size > FILE_BYTES:
        return False
    return kernelbench.is_kernelbench(path.read_text(encoding="utf-8", errors="replace"))


def _natural(path: Path) -> tuple[int, str]:
    head = path.name.split("_")[0]
    return (int(head) if head.isdecimal() else 0, path.name)
