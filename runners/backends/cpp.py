"""C++ for the CPU: a plain shared library with a C signature.

Measured on two cores: 0.26 s by g++, where the same kernel through torch's load_inline takes 28.5 s. The compiler
runs in the sandbox too, since an #include can read files. Flags come from an allow-list.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runners.backends.base import Artefact, Backend, BuildRequest, chosen_tunables
from runners.backends.cache import BuildCache
from runners.backends.compiling import compile_source, digest, macro_text, moved_library
from runners.backends.disassembly import disassembled
from runners.backends.resources import vector_widths
from runners.errors import InfraFailure
from runners.job import BuildReport, KernelResources, Language, Source
from runners.tunables import Space, parse

DEFAULT_FLAGS = ("-O3", "-march=native")
ALWAYS = ("-fopenmp", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas")
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


class CppBackend(Backend):
    """g++ or clang++, whichever KERNELSCI_CXX names or the machine has."""

    language = Language.CPP
    kind = "native"

    def refused_flags(self, source: Source, space: Space) -> list[str]:
        """Flags of the choice or of the text that the allow-list does not know."""
        flags = [*source.flags, *(flag for flags in space.flag_sets for flag in flags)]
        return [
            f"flag {flag} is not on the list of allowed flags" for flag in flags if not _ALLOWED.fullmatch(flag)
        ]

    def build(self, request: BuildRequest) -> Artefact:
        """Compile and link in one step, or take the result from the cache."""
        command = _command(request.source)
        cache_entry = BuildCache("cpp", _cache_key(request, command))
        library = request.folder / "kernel.so"
        report = cache_entry.fetch(library)
        if report is None:
            report = _compile(request, command, library)
            cache_entry.keep(library, report)
        return Artefact(self.kind, library if report.ok else None, request.symbol, report)


def compiler() -> str:
    """Absolute path of the C++ compiler. Raises InfraFailure naming the package to install."""
    for name in (os.environ.get("KERNELSCI_CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise InfraFailure("no C++ compiler: install g++ (Debian, Ubuntu: apt install g++)")


@cache
def compiler_version(path: str) -> str:
    """First line of `--version`."""
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    return answer.stdout.partition("\n")[0]


@cache
def processor() -> str:
    """Model and feature flags, on which -march=native depends."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _command(source: Source) -> list[str]:
    space = parse(source.text)
    declared = space.flag_sets[0] if space.flag_sets else DEFAULT_FLAGS
    flags = source.flags or declared
    standard = [] if any(flag.startswith("-std=") for flag in flags) else ["-std=c++20"]
    macros = [f"-D{name}={macro_text(value)}" for name, value in sorted(chosen_tunables(source).items())]
    return [compiler(), *standard, *flags, *ALWAYS, *macros]


def _cache_key(request: BuildRequest, command: list[str]) -> str:
    parts = [request.source.text, request.symbol, command, compiler_version(command[0]), processor()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _compile(request: BuildRequest, command: list[str], library: Path) -> BuildReport:
    compiled = compile_source(request, command, "kernel.cpp", "kernel.so")
    log = compiled.log
    if compiled.product is not None:
        log = moved_library(compiled.product, library, request.symbol) or log
    ok = library.exists()
    if not ok:
        return BuildReport(False, compiled.seconds, False, log)
    assembly = disassembled(request, library)
    return BuildReport(
        True, compiled.seconds, False, log, digest(library), _resources(library, request.symbol, assembly), assembly
    )


def _resources(library: Path, symbol: str, assembly: Mapping[str, str]) -> list[KernelResources]:
    extra: dict[str, Any] = {"library_bytes": library.stat().st_size}
    if "x86" in assembly:
        extra["vector_instructions"] = vector_widths(assembly["x86"])
    return [KernelResources(symbol, extra=extra)]
