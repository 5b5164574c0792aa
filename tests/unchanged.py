"""Leave out tests of what compilers make of files that nobody has changed.

Such a test depends on files of this repository and on compilers, and on no clock, device, server or processor. It
carries the mark `unchanged`, whose arguments name what it reads beside the runners and its own file. Where all of it
is as it was when the test last passed, as tests/passed.json says, running it would repeat a result. It is left out
then, and named by their number at the end. `--long` runs all of them, and `make passed` writes the file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

MARK = "unchanged"
ROOT = Path(__file__).parents[1]
PASSED = ROOT / "tests" / "passed.json"
# Read by every test with the mark.
COMMON = ("runners", "requirements.txt", "requirements-runner.txt", "requirements-dev.txt", "packages.txt")
PACKAGES = ("torch", "triton")
COMPILERS = ("clang++-19", "nvcc")


def is_unchanged(item: pytest.Item) -> bool:
    """Return whether a test with the mark has passed with all that it depends on as it is now."""
    return item.get_closest_marker(MARK) is not None and passed().get(function_of(item)) == digest_of(item)


def function_of(item: pytest.Item) -> str:
    """Return the name of a test's function with its file; all parameters of it share one entry."""
    return f"{item.path.relative_to(ROOT).as_posix()}::{getattr(item, 'originalname', item.name)}"


def digest_of(item: pytest.Item) -> str:
    """Return a hash of all files and versions that a test with the mark depends on."""
    mark = item.get_closest_marker(MARK)
    named = mark.args if mark is not None else ()
    return _digest((*COMMON, *named, item.path.relative_to(ROOT).as_posix()))


def write(items: Sequence[pytest.Item], failed: set[str]) -> None:
    """Keep the hashes of the test functions of which none failed or was skipped, and drop all others."""
    functions = {function_of(item): digest_of(item) for item in items if item.get_closest_marker(MARK)}
    kept = {name: digest for name, digest in sorted(functions.items()) if name not in failed}
    PASSED.write_text(json.dumps(kept, indent=1) + "\n")


def passed() -> dict[str, str]:
    """Return the hash with which each test function has passed."""
    found: dict[str, str] = json.loads(PASSED.read_text()) if PASSED.exists() else {}
    return found


@cache
def _digest(paths: tuple[str, ...]) -> str:
    whole = hashlib.sha256(json.dumps(_versions()).encode())
    for path in sorted({file for name in paths for file in _files(ROOT / name)}):
        whole.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for path in place.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


@cache
def _versions() -> list[str]:
    """Return the versions of the compilers and of what runs them."""
    return [platform.python_version(), platform.machine(), *map(_package, PACKAGES), *map(_compiler, COMPILERS)]


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _compiler(name: str) -> str:
    program = shutil.which(name)
    return subprocess.check_output([program, "--version"], text=True) if program else "none"
