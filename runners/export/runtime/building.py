"""Build a kernel's shared library with the compiler of this machine, ahead or at first use, and load it."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

BUILD_S = 600
COMPILERS = {"cpp": ("g++", "clang++", "c++"), "cuda": ("nvcc",), "hip": ("hipcc",)}
PACKAGES = {"cpp": "a C++ compiler (g++)", "cuda": "NVIDIA's compiler (nvcc)", "hip": "ROCm's compiler (hipcc)"}
# The variable that names another compiler.
NAMED_BY = {"cpp": "KERNEL_CXX", "cuda": "KERNEL_NVCC", "hip": "KERNEL_HIPCC"}
FIXED = {
    "cpp": ["-fopenmp", "-shared", "-fPIC"],
    "cuda": ["-shared", "-Xcompiler", "-fPIC", "-lineinfo"],
    "hip": ["-shared", "-fPIC"],
}


class BuildError(RuntimeError):
    """Report that a kernel cannot be built or loaded on this machine. The message says why."""


def load(source: str, declared: dict[str, Any], ahead: Path | None = None) -> Any:
    """Return the C function of a kernel, built if no library of this machine is there. Raises BuildError.

    `ahead` is the folder where a library that was built ahead may lie, beside the cache.
    """
    library = build(source, declared, ahead)
    try:
        function = getattr(ctypes.CDLL(str(library)), declared["symbol"])
    except (OSError, AttributeError) as error:
        raise BuildError(f"{library} cannot be loaded: {error}") from error
    function.restype = None
    return function


def build(source: str, declared: dict[str, Any], ahead: Path | None = None, *, into: Path | None = None) -> Path:
    """Return the library's path, after building it where that has not happened yet. Raises BuildError.

    It is built `into` a folder, by default the cache. Its name is a digest of source, command, compiler and processor:
    a copied home directory, another GPU or an updated compiler leads to a build of its own.
    """
    command = command_of(declared)
    name = f"{declared['name']}-{_digest(source, command)}.so"
    for place in (ahead, into, cache_folder()):
        if place is not None and (place / name).is_file():
            return place / name
    place = into or cache_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as made:
            text, product = Path(made) / declared["source"], Path(made) / name
            text.write_text(source)
            _compile([*command, str(text), "-o", str(product)])
            # A rename is atomic, so that processes that build at the same time never load half a library.
            product.replace(place / name)
    except OSError as error:
        raise BuildError(f"{place} cannot be written: {error.strerror or error}") from error
    return place / name


def command_of(declared: dict[str, Any]) -> list[str]:
    """Return the compiler's command line without source and product. Raises BuildError without a compiler."""
    language = declared["language"]
    flags = list(declared["flags"])
    if not any(flag.startswith(("-std=", "--std=")) for flag in flags):
        flags.insert(0, "-std=c++20" if language == "cpp" else "-std=c++17")
    return [compiler_of(language), *flags, *FIXED[language], *_architecture(language)]


def compiler_of(language: str) -> str:
    """Return the path of a language's compiler; the variables of `NAMED_BY` name another. Raises BuildError."""
    named = os.environ.get(NAMED_BY[language])
    for name in [named] if named else [*COMPILERS[language], *_elsewhere(language)]:
        if found := shutil.which(name):
            return found
    raise BuildError(f"this machine has no {named}" if named else f"this machine lacks {PACKAGES[language]}")


def cache_folder() -> Path:
    """Return where libraries that were built at first use are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base else Path.home() / ".cache"
    return Path(os.environ.get("KERNEL_CACHE") or folder / "exported-kernels")


def _elsewhere(language: str) -> list[str]:
    """Return where compilers lie that are not on the path: the toolkit's folder, or NVIDIA's wheel."""
    if language == "hip":
        return [str(Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "bin" / "hipcc")]
    if language != "cuda":
        return []
    found = [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/nvcc"]
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        found += [str(path) for path in sorted(Path(place).glob("*/bin/nvcc"))]
    return found


def _architecture(language: str) -> list[str]:
    if language == "cpp" or not torch.cuda.is_available():
        return []
    if language == "hip":
        return [f"--offload-arch={torch.cuda.get_device_properties(0).gcnArchName.split(':')[0]}"]
    major, minor = torch.cuda.get_device_capability()
    # The suffix opens instructions of one generation, such as wgmma, which no other generation has.
    suffix = "a" if major >= 9 else ""
    return [f"-arch=sm_{major}{minor}{suffix}"]


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} could not build the kernel: {error}") from error
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")


def _digest(source: str, command: list[str]) -> str:
    version = subprocess.run([command[0], "--version"], capture_output=True, check=False).stdout
    parts = [source.encode(), " ".join(command).encode(), version, _processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _processor() -> str:
    """Return the processor's model and features, on which `-march=native` depends."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first if line.startswith(("model name", "flags", "Features", "CPU part")))
