"""Install requirement files into the environment of this interpreter.

    .venv/bin/python -m kernelsci.install requirements.txt

TORCH_INDEX names the build of torch (`cpu`, `cu126`, `rocm7.2`, `pypi`, `none`, or the address of an index), INSTALLER
the tool (`uv`, `pip`). What pip and uv read of their own accord holds too, and uv is told what pip is configured with,
such as PIP_INDEX_URL.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import time
from pathlib import Path

from kernelsci.install import packages, tools
from kernelsci.install.packages import InstallFailedError, ToolFailedError
from kernelsci.install.tools import Tool
from kernelsci.install.torch_build import NONE, OF_TORCH, TorchBuild, answers, choose

LOG = Path(sys.prefix) / "install.log"


def main(files: list[str]) -> int:
    """Install the files' packages, the right build of torch first. Return the exit code."""
    begin = time.monotonic()
    LOG.write_text("")
    wanted = [line for file in files for line in requirements(Path(file))]
    tool = tools.choose(os.environ)
    print(f"Installing {len(wanted)} packages and what they need, with {tool.name}", flush=True)
    try:
        _install(tool, wanted)
    except InstallFailedError as error:
        print(f"{error}\n\nThe packages could not be installed; {LOG} has all that was said.", file=sys.stderr)
        return 1
    shutil.rmtree(tools.spare_cache(), ignore_errors=True)
    print(f"Installed in {time.monotonic() - begin:.0f} s, {_megabytes(Path(sys.prefix)):,} MB", flush=True)
    return 0


def _install(tool: Tool, wanted: list[str]) -> None:
    """Install with `tool`, and with pip where uv fails without having been asked for."""
    try:
        left_out = _install_torch(tool, wanted, os.environ.get("TORCH_INDEX", "").strip())
        packages.install(tool, [line for line in wanted if not line.startswith(left_out)], LOG)
    except ToolFailedError as error:
        if tool.name != "uv" or os.environ.get("INSTALLER") == "uv":
            raise
        print(f"{error}\nuv could not install this; pip tries again", flush=True)
        _install(tools.of_pip(os.environ), wanted)


def requirements(file: Path) -> list[str]:
    """Return the requirements of a file and of those that it includes, without comments."""
    found: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        words = line.partition(" #")[0].strip()
        if words.startswith("-r "):
            found += requirements(file.parent / words.removeprefix("-r "))
        elif words and not words.startswith("#"):
            found.append(words)
    return found


def _install_torch(tool: Tool, wanted: list[str], setting: str) -> tuple[str, ...]:
    """Install torch from the index of its build, unless it is PyPI's or here already; return what to leave out."""
    # Alone and first: every other package comes from the ordinary index, so that PyTorch's cannot replace any.
    requirement = next((line for line in wanted if line.startswith("torch==")), None)
    if requirement is None or _installed("torch").partition("+")[0] == requirement.partition("==")[2]:
        return ()
    build = choose(setting, _targets)
    print(f"torch: the build {build.name}, since {build.reason}. TORCH_INDEX=… chooses another", flush=True)
    _check_disk(build)
    if build.name == NONE:
        return OF_TORCH
    if build.index is None:
        return ()
    if not setting and not answers(build.index):
        print(f"{build.index} cannot be reached: torch comes from your package index, which may bring NVIDIA's")
        print("libraries along (3 GB more). TORCH_INDEX=address names a mirror of that folder", flush=True)
        return ()
    packages.install(tool, ["--index-url", build.index, requirement], LOG)
    return ()


def _targets() -> list[str]:
    """Return the devices that can be timed here."""
    # Imported when asked: a container image installs packages before it has the product's files.
    from runners.doctor import local_targets

    return local_targets()


def _check_disk(build: TorchBuild) -> None:
    """Refuse before the gigabytes. Raises `InstallFailedError`."""
    free_mb = shutil.disk_usage(sys.prefix).free // 1_000_000
    if free_mb < build.disk_mb:
        raise InstallFailedError(
            f"{free_mb:,} MB are free in {sys.prefix}, torch's build {build.name} takes {build.disk_mb:,} MB: "
            "free some, or choose the smaller one: TORCH_INDEX=cpu make start"
        )


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _megabytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*")) // 1_000_000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
