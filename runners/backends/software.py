"""Name the software on which a kernel's speed depends: driver, compiler, torch, triton, each with its version."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runners.backends.cpp import compiler as cxx
from runners.backends.cpp import compiler_version
from runners.backends.cuda import nvcc
from runners.backends.hip import hipcc
from runners.errors import InfraFailure
from runners.targets import TARGETS

# Both files are readable without any tool of the vendor.
DRIVERS = {"nvidia": Path("/proc/driver/nvidia/version"), "amdgpu": Path("/sys/module/amdgpu/version")}
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@cache
def software_of(target_key: str) -> dict[str, str]:
    """Return the versions of what is installed here and matters on the target, by name. What is absent is left out.

    A driver or compiler that is replaced under a running worker is seen once the worker starts again, which is also
    when it is first used.
    """
    vendor = TARGETS[target_key].vendor if target_key in TARGETS else ""
    found = {
        "driver": driver() if vendor not in ("", "cpu") else "",
        "compiler": _compiler(vendor),
        **{name: _package(name) for name in ("torch", "triton")},
    }
    return {name: text[:120] for name, text in found.items() if text}


def driver() -> str:
    """Return the GPU driver, such as `nvidia 580.65.06` or `amdgpu 6.12.12`, or an empty text if there is none."""
    for name, path in DRIVERS.items():
        try:
            found = _VERSION.search(path.read_text(errors="replace"))
        except OSError:
            continue
        return f"{name} {found[0]}" if found else name
    return "amdgpu" if Path("/dev/kfd").exists() else ""


def _compiler(vendor: str) -> str:
    """Return the version of the compiler for the vendor's devices, or an empty text without one."""
    try:
        path = {"nvidia": nvcc, "amd": hipcc}.get(vendor, cxx)()
        return compiler_version(path) if path else ""
    except (InfraFailure, OSError):
        return ""


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
