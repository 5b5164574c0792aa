"""Build C++ for the CPU: a plain shared library with a C signature.

Measured on two cores: 0.26 s by g++, where the same kernel through torch's load_inline takes 28.5 s. The compiler
runs in the sandbox too, since an #include can read files. Flags come from an allow-list.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from runners.backends.base import BuildRequest
from runners.backends.disassembly import disassembled
from runners.backends.native import NativeBackend
from runners.backends.resources import vector_widths
from runners.errors import InfraFailure
from runners.job import KernelResources, Language

FIXED_FLAGS = ("-fopenmp", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas")
# GCC before 13 warns of its own AVX-512 headers wherever it inlines them (its bug 105593): a megabyte of it for one
# register tile, in which an error cannot be found. Clang ends after 20 errors by default and has no such warnings.
GCC_FLAGS = ("-fmax-errors=20", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
_NUMBER = re.compile(r"\d+\.\d+")
# Only switches that change how code is generated. Others could read files (-include, -fplugin) or write them (-o,
# -dumpdir).
_SWITCHES = (
    "fast-math|associative-math|reciprocal-math|finite-math-only|signed-zeros|trapping-math|math-errno"
    "|unsafe-math-optimizations|unroll-loops|unroll-all-loops|tree-vectorize|tree-slp-vectorize|strict-aliasing"
    "|omit-frame-pointer|inline-functions|prefetch-loop-arrays|peel-loops|split-loops|ipa-pta|rounding-math"
    "|vect-cost-model(=(unlimited|dynamic|cheap|very-cheap))?|openmp|openmp-simd|excess-precision=fast"
)
_ALLOWED = re.compile(
    rf"-O[0-3s]|-Ofast|-g0?|-std=(c|gnu)\+\+(17|20|23)|-f(no-)?({_SWITCHES})|-ffp-contract=(fast|on|off)"
    r"|-m(arch|tune)=(native|x86-64(-v[234])?)|-mprefer-vector-width=(128|256|512)"
    r"|-m(no-)?(sse4\.[12]|avx|avx2|fma|f16c|bmi2?|avx512(f|bw|dq|vl|cd|vnni|bf16|fp16))"
)


class CppBackend(NativeBackend):
    """Build with g++ or clang++, whichever KERNELSCI_CXX names or the machine has."""

    language = Language.CPP
    title = Language.CPP.label
    source_name = "kernel.cpp"
    default_flags = ("-O3", "-march=native")
    default_standard = "-std=c++20"
    allowed_flags = _ALLOWED

    def compiler(self, request: BuildRequest) -> str:
        """Return the path of the C++ compiler. Raises InfraFailure."""
        return compiler()

    def fixed_flags(self, request: BuildRequest) -> list[str]:
        """Return the flags for a shared library that uses OpenMP."""
        return [*FIXED_FLAGS, *(() if "clang" in compiler_version(self.compiler(request)) else GCC_FLAGS)]

    def fingerprint(self, command: list[str]) -> list[str]:
        """Return the compiler's version and the processor, on which -march=native depends."""
        return [compiler_version(command[0]), processor()]

    def inspect(
        self, request: BuildRequest, product: Path, log: str
    ) -> tuple[list[KernelResources], dict[str, str]]:
        """Return the widths of the vector instructions, and the disassembly where a disassembler is installed."""
        assembly = disassembled(request, product)
        extra: dict[str, Any] = {"library_bytes": product.stat().st_size}
        if "x86" in assembly:
            extra["vector_instructions"] = vector_widths(assembly["x86"])
        return [KernelResources(request.symbol, extra=extra)], assembly


def compiler() -> str:
    """Return the absolute path of the C++ compiler. Raises InfraFailure naming the package to install."""
    for name in (os.environ.get("KERNELSCI_CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise InfraFailure("no C++ compiler: install g++ (Debian, Ubuntu: apt install g++)")


@cache
def compiler_version(path: str) -> str:
    """Return the first line of `--version` that names one: nvcc begins with its title and copyright."""
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    lines = answer.stdout.splitlines()
    return next((line for line in lines if _NUMBER.search(line)), lines[0] if lines else "")


@cache
def processor() -> str:
    """Return the processor's model and feature flags, on which -march=native depends."""
    # All cores of a machine are alike, so the first entry describes them.
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
