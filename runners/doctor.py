"""Find out what this machine can build, run and confine, and what to install for the rest. Standard library only.

Facts are looked up, never guessed: programs are asked for their version, GPUs are read from the driver's own files.
Nothing here imports torch or triton, so it answers in well under a second.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runners.backends.cpp import compiler
from runners.backends.mca import llvm_mca
from runners.errors import InfraFailure
from runners.harness.devices.gpu_state import answer_of
from runners.harness.processes.compilers import NO_NINJA, ninja
from runners.sandbox.base import SandboxLevel
from runners.sandbox.cgroup import delegation
from runners.sandbox.probe import probe_report, why_not_forked
from runners.targets import TARGETS, product_target

ASK_WITHIN_S = 5.0
OLDEST_HIP_CLANG, NEWEST_HIP_CLANG = 19, 30
# The kernel driver's own description of the GPUs, present without ROCm.
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
DELEGATE = "docs/operations.md says how to delegate a control group"
INSTALL_SANDBOX = "Debian, Ubuntu: apt-get install bubblewrap"


@dataclass(frozen=True)
class Fact:
    """State one fact. `remedy` says what to install if it is not `ok`; `needed` marks what every kernel needs."""

    topic: str
    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = False


def facts() -> list[Fact]:
    """Collect all facts about this machine as a runner."""
    return [*_system(), *_compilers(), *_libraries(), *_gpus(), *_sandbox()]


def as_json(found: list[Fact]) -> dict[str, Any]:
    """Return the facts as plain data: `{"ready": bool, "facts": [...]}`."""
    return {"ready": all(fact.ok for fact in found if fact.needed), "facts": [asdict(fact) for fact in found]}


def as_text(found: list[Fact]) -> str:
    """Format the facts for people: a block for each topic, a remedy under what is missing."""
    lines: list[str] = []
    for topic in dict.fromkeys(fact.topic for fact in found):
        lines += [topic, *(line for fact in found if fact.topic == topic for line in _lines_of(fact)), ""]
    return "\n".join(lines).rstrip()


def missing_compiler() -> str | None:
    """Return what to install before any CPU kernel can be built, or None."""
    try:
        compiler()
    except InfraFailure as failure:
        return str(failure)
    return None


def cpp_compiler() -> str | None:
    """Return the C++ compiler that builds CPU kernels, or None."""
    return None if missing_compiler() else compiler()


def hip_compiler() -> str | None:
    """Return a compiler of HIP device code: `hipcc`, or a stock clang new enough for gfx942 (19)."""
    clangs = (f"clang++-{major}" for major in range(NEWEST_HIP_CLANG, OLDEST_HIP_CLANG - 1, -1))
    return next((found for name in ("hipcc", *clangs) if (found := shutil.which(name))), None)


def local_targets() -> list[str]:
    """Return the names of the targets that can be timed here: the CPU, and each kind of GPU once."""
    return ["cpu", *dict.fromkeys(target for target, _model in [*_nvidia_gpus(), *_amd_gpus()])]


def _lines_of(fact: Fact) -> list[str]:
    mark = "✓" if fact.ok else ("✗" if fact.needed else "–")
    line = f"  {mark} {fact.name:<20} {fact.detail}"
    return [line] if fact.ok or not fact.remedy else [line, f"    {'':<20} {fact.remedy}"]


def _system() -> Iterator[Fact]:
    yield _python()
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    yield Fact(
        "Machine", "cpu", True, f"{TARGETS['cpu'].title}, {cores} cores, {memory_bytes / 2**30:.1f} GiB memory"
    )


def _python() -> Fact:
    """Return the interpreter's version. Ubuntu 22.04 packages 3.11.0rc1, with which torch 2.13 traces no model."""
    remedy = (
        "a pre-release, with which KernelBench problems take no C++: make start PYTHON=… names a released Python"
    )
    is_released = sys.version_info.releaselevel == "final"
    return Fact("Machine", "python", is_released, f"{platform.python_version()} on {platform.machine()}", remedy)


def _compilers() -> Iterator[Fact]:
    yield _compiler("C++ (CPU kernels)", cpp_compiler(), "Debian, Ubuntu: apt-get install g++", needed=True)
    yield _compiler(
        "HIP (AMD kernels)",
        hip_compiler(),
        "Debian, Ubuntu: apt-get install clang-19 rocm-device-libs; or hipcc of ROCm",
    )
    yield _compiler("llvm-mca (cycles of AMD kernels)", llvm_mca(), "Debian, Ubuntu: apt-get install llvm-19")
    yield _compiler("CUDA (NVIDIA kernels)", shutil.which("nvcc"), "nvcc of the CUDA toolkit")
    yield _compiler("ninja (load_inline)", ninja(), NO_NINJA.partition(": ")[2])


def _compiler(name: str, path: str | None, remedy: str, *, needed: bool = False) -> Fact:
    version = _first_line([path, "--version"]) if path else None
    if path is None:
        return Fact("Compilers", name, False, "not found", remedy, needed)
    return Fact("Compilers", name, version is not None, f"{path}: {version or 'does not run'}", remedy, needed)


def _libraries() -> Iterator[Fact]:
    for name, use in (("torch", "references and baselines"), ("triton", "Triton kernels")):
        version = _installed_version(name)
        yield Fact(
            "Python packages", name, bool(version), f"{version or 'missing'}: {use}", f"pip install {name}",
            needed=name == "torch",
        )  # fmt: skip


def _gpus() -> Iterator[Fact]:
    found = [*_nvidia_gpus(), *_amd_gpus()]
    for target, model in found:
        yield Fact("GPUs", target, True, model)
    if not found:
        yield Fact("GPUs", "none", False, "CPU kernels are timed here; GPU kernels are built, not timed")


def _nvidia_gpus() -> list[tuple[str, str]]:
    answer = answer_of(["nvidia-smi", "--query-gpu=compute_cap,name", "--format=csv,noheader"], ASK_WITHIN_S)
    rows = [line.split(", ", 1) for line in (answer or "").splitlines() if ", " in line]
    return [(_product_key(f"sm_{capability.replace('.', '')}", model), model) for capability, model in rows]


def _product_key(arch: str, model: str) -> str:
    """Return the target of a product if it has one of its own, such as `sm_90-h200`, else the architecture."""
    own = product_target(model)
    return own.key if own is not None and own.arch == arch else arch


def _amd_gpus() -> list[tuple[str, str]]:
    """Read the kernel driver's topology, which is there without ROCm. CPUs are nodes with version 0."""
    found = []
    for properties in sorted(KFD_NODES.glob("*/properties")):
        version = re.search(r"^gfx_target_version (\d+)$", properties.read_text(), re.MULTILINE)
        if version and int(version[1]):
            found.append((gfx_name(int(version[1])), f"AMD GPU, KFD node {properties.parent.name}"))
    return found


def gfx_name(version: int) -> str:
    """Convert the driver's number to the compiler's target: 90402 is gfx942, 90010 is gfx90a."""
    major, minor, step = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _sandbox() -> Iterator[Fact]:
    """State how firmly untrusted kernels are confined, and why not more firmly."""
    found = probe_report()
    firm = found.level is SandboxLevel.BUBBLEWRAP
    confined = found.level in (SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK)
    reasons = "; ".join(f"not {level}: {reason}" for level, reason in found.reasons.items())
    yield Fact(
        "Sandbox", str(found.level), confined, reasons or "the firmest there is", "" if firm else INSTALL_SANDBOX,
        needed=True,
    )  # fmt: skip
    groups = delegation()
    detail = str(groups.base) if groups.base else f"{groups.reason}; memory is sampled, not counted by the kernel"
    yield Fact("Sandbox", "control groups", groups.base is not None, detail, DELEGATE)
    reason = why_not_forked(found.level)
    yield Fact("Sandbox", "fork server", reason is None, reason or "torch is imported once for many processes", "")


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    answer = answer_of(command, ASK_WITHIN_S)
    return answer.splitlines()[0].strip() if answer else None
