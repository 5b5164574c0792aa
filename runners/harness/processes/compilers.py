"""Find the compilers that Python candidates start themselves, and interpret their failures.

torch's extensions need a C++ compiler, ninja and for CUDA the toolkit; Triton needs a C compiler; inductor needs one
of both. Every process of a module gets the same environment, whether it builds, is checked or is timed: ninja builds
again when a command differs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from runners.backends.cpp import compiler
from runners.backends.cuda import nvcc
from runners.errors import InfraFailure
from runners.harness.devices.device import Device
from runners.sandbox.launch import DEFAULT_PATH

# Several evaluations may build at the same time on one machine.
MOST_JOBS = 4
# torch's headers take g++ 1.4 GiB; nvcc with them takes less than 2.
JOB_BYTES = 2 << 30
# Long enough for several errors with their context, short enough for a prompt.
REASON_LINES = 40
NO_NINJA = (
    "ninja is not installed: apt install ninja-build (or pip install ninja, but never beside django-ninja, whose "
    "module it overwrites)"
)

# g++, clang, nvcc, ld and ninja all print one of these words with an error.
_ERROR_LINE = re.compile(r"\berror\b|undefined (reference|symbol)|No such file|not found|unresolved", re.IGNORECASE)
_COMPILER_KINDS = {
    "CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure",  # Triton
    "CppCompileError", "CUDACompileError", "InductorError", "BackendCompilerFailed",  # inductor
    "CalledProcessError", "NVRTCError", "CompileException", "LoweringError", "TypingError",  # nvcc, CuPy, Numba
}  # fmt: skip
_COMPILER_WORDS = (
    "Error building extension", "Error compiling objects for extension",
    "PassManager::run failed",  # Triton, in a RuntimeError
)  # fmt: skip
# How MLIR prints a module beside an error: names of layouts, the module, and the passes that it was going through.
# A log may have been cut inside it.
_MLIR_BEGIN = re.compile(r"#\w+ = \S|module\b.*\{$|\"builtin\.module\"|\{-#$")
_MLIR_INSIDE = re.compile(rf"\s|#|\}}|\^|$|\[… .* left out …\]$|{_MLIR_BEGIN.pattern}")
_MEMORY_WORDS = ("virtual memory exhausted", "out of memory allocating", "Cannot allocate memory", "std::bad_alloc")


@cache
def ninja() -> str | None:
    """Return the path of ninja, or None if there is none.

    KERNELSCI_NINJA comes first, then the one beside this interpreter, then the system's.
    """
    beside = os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts")])
    named = os.environ.get("KERNELSCI_NINJA")
    found = (named and shutil.which(named)) or shutil.which("ninja", path=beside)
    return found or shutil.which("ninja", path=DEFAULT_PATH)


def jobs() -> int:
    """Return how many compilers may run at the same time."""
    return max(1, min(MOST_JOBS, len(os.sched_getaffinity(0))))


def environment(device: Device) -> dict[str, str]:
    """Return the variables by which a module's compilers find each other on a device's machine."""
    found = {"MAX_JOBS": str(jobs())}
    folders = [str(Path(path).parent) for path in (ninja(),) if path]
    if (cxx := _found(compiler)) is not None:
        found["CXX"] = cxx
    if device.kind == "cuda" and (toolkit := cuda_home()) is not None:
        found["CUDA_HOME"] = str(toolkit)
        folders.append(str(toolkit / "bin"))
    return {**found, "PATH": ":".join(dict.fromkeys([*folders, *DEFAULT_PATH.split(":")]))}


def read_only(device: Device) -> tuple[Path, ...]:
    """Return what a sandbox must show of the compilers beyond /usr."""
    toolkit = cuda_home() if device.kind == "cuda" else None
    paths = [] if toolkit is None else [toolkit, toolkit.resolve()]
    return tuple(dict.fromkeys(path for path in paths if not path.is_relative_to("/usr")))


def cuda_home() -> Path | None:
    """Return the CUDA toolkit's folder; None where there is none."""
    found = _found(nvcc)
    return None if found is None else Path(found).parents[1]


def is_compile_error(kind: str, text: str) -> bool:
    """Return whether an exception of that class, with that text, is a compiler's complaint about the source."""
    return kind in _COMPILER_KINDS or any(words in text for words in _COMPILER_WORDS)


def lacks_memory(text: str) -> bool:
    """Return whether a compiler's output complains of memory."""
    return any(words in text for words in _MEMORY_WORDS)


def complaint(device: Device, text: str) -> str | None:
    """Return which tool a failed build lacked on this machine and how to install it, or None if it lacked none."""
    if "inja" in text and ninja() is None:
        return NO_NINJA
    if "Python.h" in text and "No such file" in text:
        return "no Python headers: install python3-dev (Debian, Ubuntu: apt install python3-dev)"
    try:
        compiler()
    except InfraFailure as missing:
        return str(missing)
    if device.kind == "cuda" and "CUDA_HOME" in text and cuda_home() is None:
        return "no nvcc: install the CUDA toolkit"
    return None


def without_modules(text: str) -> str:
    """Replace the MLIR modules in a compiler's output by their number of lines.

    Triton prints the whole module where a pass fails, hundreds of lines in which the error is lost.
    """
    kept: list[str] = []
    left_out = 0
    for line in [*text.split("\n"), None]:
        pattern = _MLIR_INSIDE if left_out else _MLIR_BEGIN
        if line is not None and pattern.match(line.rstrip("\r")) and "error:" not in line:
            left_out += 1
            continue
        kept += [f"[{left_out} lines of MLIR left out]"] if left_out else []
        left_out = 0
        kept += [line] if line is not None else []
    return "\n".join(kept)


def essence(text: str) -> str:
    """Return the lines of compilers' output that describe errors, each with the two lines after it that show where."""
    lines = text.splitlines()
    marked = {n + step for n, line in enumerate(lines) if _ERROR_LINE.search(line) for step in range(3)}
    kept = [line for n, line in enumerate(lines) if n in marked and not _is_command(line)]
    return "\n".join(list(dict.fromkeys(kept))[:REASON_LINES])


def _is_command(line: str) -> bool:
    """Return whether a line repeats a command or is a frame of a traceback: both are long and explain nothing."""
    return " -c " in line or " -o " in line or line.startswith(("FAILED:", "ninja:", "Traceback", "  File "))


def _found(tool: Callable[[], str]) -> str | None:
    try:
        return tool()
    except InfraFailure:
        return None
