"""Prepare what a stock clang needs to compile HIP device code without ROCm: a ROCm directory in the state directory.

Headers come from the Triton wheel (or Debian's libamdhip64-dev), device libraries from Debian's rocm-device-libs. Its
newest library for an instruction set is gfx940's. gfx942 differs from it only in a number that library functions
compare, so a copy under gfx942's name serves. A real ROCm takes precedence (`backends.hip`).
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from runners.errors import InfraFailure
from runners.state import state_dir

BITCODE = (Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"), Path("/usr/lib/aarch64-linux-gnu/amdgcn/bitcode"))
SYSTEM_HEADERS = Path("/usr/include/hip")
# Debian has no library for gfx942; this is the nearest (see above).
STAND_INS = {"oclc_isa_version_942.bc": "oclc_isa_version_940.bc"}
VERSION_FILE = Path("share/hip/version")
VERSION = "HIP_VERSION_MAJOR={}\nHIP_VERSION_MINOR={}\nHIP_VERSION_PATCH=0\n"


@cache
def rocm_directory() -> Path:
    """Return a directory for `--rocm-path`, readable by everybody. Raises InfraFailure naming what to install.

    Any number of threads and processes may ask for it at the same time.
    """
    root = state_dir("rocm") / "device"
    if not (root / VERSION_FILE).exists():
        with tempfile.TemporaryDirectory(dir=root.parent, ignore_cleanup_errors=True) as made:
            _fill(Path(made) / "device")
            # What an interrupted process left lacks the file that is written last.
            with suppress(OSError):
                _take_away(root)
                (Path(made) / "device").rename(root)
    return root


def _fill(root: Path) -> None:
    """Write the directory, which nobody else sees yet."""
    headers, bitcode = _headers(), _bitcode()
    shutil.copytree(headers, root / "include" / "hip", symlinks=False)
    shutil.copytree(bitcode, root / "amdgcn" / "bitcode", symlinks=False)
    for missing, present in STAND_INS.items():
        if not (root / "amdgcn" / "bitcode" / missing).exists():
            shutil.copyfile(bitcode / present, root / "amdgcn" / "bitcode" / missing)
    version = root / VERSION_FILE
    version.parent.mkdir(parents=True)
    version.write_text(VERSION.format(*_version(headers)))
    # The sandbox's user must be able to read the directory, which lies in a private state directory.
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _take_away(root: Path) -> None:
    """Remove a directory that is not complete; one that another process completed meanwhile stays."""
    if root.exists() and not (root / VERSION_FILE).exists():
        shutil.rmtree(root)


def _headers() -> Path:
    found = importlib.util.find_spec("triton")
    wheel = Path(found.origin).parent / "backends" / "amd" / "include" / "hip" if found and found.origin else None
    for folder in (wheel, SYSTEM_HEADERS):
        if folder is not None and (folder / "hip_runtime.h").exists():
            return folder
    raise InfraFailure("no HIP headers: pip install triton (they are in its wheel), or apt install libamdhip64-dev")


def _bitcode() -> Path:
    for folder in BITCODE:
        if (folder / "ocml.bc").exists():
            return folder
    raise InfraFailure("no device libraries for AMD GPUs: apt install rocm-device-libs")


def _version(headers: Path) -> tuple[str, str]:
    text = (headers / "hip_version.h").read_text() if (headers / "hip_version.h").exists() else ""
    fields = dict(line.split()[1:3] for line in text.splitlines() if line.startswith("#define HIP_VERSION_M"))
    return fields.get("HIP_VERSION_MAJOR", "5"), fields.get("HIP_VERSION_MINOR", "2")
