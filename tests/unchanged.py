"""Leave out tests of what compilers make of files that nobody has changed.

Such a test depends on files of this repository and on compilers, and on no clock, device or server. It carries the mark
`unchanged`, whose arguments name what it reads beside `COMMON` and its own file. Where all of it is as it was when the
test last passed, as tests/passed.json says, running it would repeat a result. Such tests are left out, and their
number is told at the end. `--long` runs all of them, and `make passed` writes the file.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from runners.backends.cpp import compiler_version
from runners.backends.mca import llvm_mca
from runners.backends.software import software_of
from runners.doctor import hip_compiler

MARK = "unchanged"
ROOT = Path(__file__).parents[1]
PASSED = ROOT / "tests" / "passed.json"
# Read by every test with the mark.
COMMON = (
    "runners", "requirements.txt", "requirements-runner.txt", "requirements-dev.txt", "packages.txt", "pyproject.toml",
    "tests/conftest.py", "tests/settings.py", "tests/runners/conftest.py", "tests/optimizer/conftest.py",
)  # fmt: skip
# AMD's device code is linked with these libraries.
DEVICE_LIBRARIES = "lib/*/amdgcn/bitcode/*"


def is_unchanged(item: pytest.Item) -> bool:
    """Return whether a test with the mark has passed with all that it depends on as it is now."""
    return is_marked(item) and digest_of(item) == passed().get(function_of(item))


def is_marked(item: pytest.Item) -> bool:
    """Return whether a test may be left out; `unchanged(always=True)` exempts one in a module that has the mark."""
    mark = item.get_closest_marker(MARK)
    return mark is not None and not mark.kwargs.get("always", False)


def function_of(item: pytest.Item) -> str:
    """Return the name of a test's function with its file; all parameters of it share one entry."""
    return f"{item.path.relative_to(ROOT).as_posix()}::{getattr(item, 'originalname', item.name)}"


def digest_of(item: pytest.Item) -> str:
    """Return a hash of all files and versions that a test with the mark depends on."""
    mark = item.get_closest_marker(MARK)
    named = mark.args if mark is not None else ()
    return _digest((*COMMON, *named, item.path.relative_to(ROOT).as_posix()))


def digests_of(items: Sequence[pytest.Item]) -> dict[str, str]:
    """Return the hash of each test function with the mark."""
    return {function_of(item): digest_of(item) for item in items if is_marked(item)}


def write(digests: dict[str, str], not_passed: set[str]) -> None:
    """Keep the hashes of the test functions that passed, and drop all others."""
    kept = {name: digest for name, digest in sorted(digests.items()) if name not in not_passed}
    PASSED.write_text(json.dumps(kept, indent=1) + "\n")


@cache
def passed() -> dict[str, str]:
    """Return the hash with which each test function has passed; nothing if the file cannot be read."""
    try:
        found: dict[str, str] = json.loads(PASSED.read_text())
    except (OSError, ValueError):
        return {}
    return found


@cache
def _digest(paths: tuple[str, ...]) -> str:
    whole = hashlib.sha256(json.dumps(_versions()).encode())
    for path in sorted({file for name in paths for file in _files(ROOT / name)}):
        whole.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Yield a file or all files below a folder. Raises FileNotFoundError, since a renamed file would count no more."""
    if not place.exists():
        raise FileNotFoundError(f"a test with the mark `{MARK}` reads {place}, which is not there")
    if place.is_file():
        yield place
    for path in place.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


@cache
def _versions() -> list[str]:
    """Return the versions of the compilers and of what runs them."""
    compilers = filter(None, (hip_compiler(), llvm_mca(), shutil.which("nvcc")))
    libraries = sorted(f"{path.name} {path.stat().st_size}" for path in Path("/usr").glob(DEVICE_LIBRARIES))
    software = [str(software_of(target)) for target in ("cpu", "sm_90", "gfx942")]
    return [platform.python_version(), platform.machine(), *software, *map(compiler_version, compilers), *libraries]
