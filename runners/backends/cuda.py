"""CUDA: a plain shared library by nvcc, with a C signature and a trailing stream argument. No torch headers, which is
what makes load_inline take tens of seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

from runners.backends.base import Artefact, Backend, BuildRequest, chosen_tunables
from runners.backends.cache import BuildCache
from runners.backends.compiling import Toolbox, compile_source, digest, macro_text, moved_library, policy
from runners.backends.cpp import compiler_version
from runners.backends.resources import capped, from_ptxas, with_occupancy
from runners.errors import InfraFailure
from runners.job import BuildReport, Language, Source
from runners.sandbox import run
from runners.targets import Target, target
from runners.tunables import Space, parse

DEFAULT_FLAGS = ("-O3",)
SPECIFIC = {"sm_90": "90a", "sm_100": "100a"}
"""Architectures whose matrix instructions need the architecture-specific target."""
NVCC_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")
NVCC_MEMORY_BYTES = 4 << 30
_ALLOWED = re.compile(
    r"-O[0-3]|-G|-lineinfo|-std=c\+\+(17|20)|--?(use_fast_math|extra-device-vectorization|expt-relaxed-constexpr"
    r"|expt-extended-lambda|restrict)|--?maxrregcount=\d{1,3}|--?fmad=(true|false)|--?ftz=(true|false)"
    r"|--?prec-(div|sqrt)=(true|false)|-lcublas|-lcublasLt"
)


class CudaBackend(Backend):
    """nvcc."""

    language = Language.CUDA
    kind = "native"

    def refused_flags(self, source: Source, space: Space) -> list[str]:
        """Flags of the choice or of the text that the allow-list does not know."""
        flags = [*source.flags, *(flag for flags in space.flag_sets for flag in flags)]
        return [
            f"flag {flag} is not on the list of allowed flags" for flag in flags if not _ALLOWED.fullmatch(flag)
        ]

    def build(self, request: BuildRequest) -> Artefact:
        """Compile and link in one step, or take the result from the cache."""
        wanted = target(request.target)
        if wanted.vendor != "nvidia":
            report = BuildReport(
                False, 0.0, False, f"CUDA kernels are built for NVIDIA GPUs, not for {wanted.title}"
            )
            return Artefact(self.kind, None, request.symbol, report)
        command = _command(request.source, wanted)
        parts = [request.source.text, request.symbol, command, compiler_version(command[0])]
        entry = BuildCache("cuda", hashlib.sha256(json.dumps(parts).encode()).hexdigest())
        library = request.folder / "kernel.so"
        kept = entry.fetch(library)
        report = kept or _compile(request, wanted, command, library)
        if kept is None:
            entry.keep(library, report)
        return Artefact(self.kind, library if report.ok else None, request.symbol, report)


def nvcc() -> str:
    """CUDA's compiler. Raises InfraFailure."""
    for name in (os.environ.get("KERNELSCI_NVCC"), *NVCC_PLACES, "nvcc"):
        if name and (found := shutil.which(name)):
            return found
    raise InfraFailure("no nvcc: install the CUDA toolkit")


def _command(source: Source, wanted: Target) -> list[str]:
    space = parse(source.text)
    flags = source.flags or (space.flag_sets[0] if space.flag_sets else DEFAULT_FLAGS)
    standard = [] if any(flag.startswith("-std=") for flag in flags) else ["-std=c++17"]
    macros = [f"-D{name}={macro_text(value)}" for name, value in sorted(chosen_tunables(source).items())]
    number = SPECIFIC.get(wanted.arch, wanted.arch.removeprefix("sm_"))
    arch = ["-gencode", f"arch=compute_{number},code=sm_{number}"]
    always = ["--shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v", "--threads", "1"]
    return [nvcc(), *standard, *flags, *arch, *always, *macros]


def _compile(request: BuildRequest, wanted: Target, command: list[str], library: Path) -> BuildReport:
    tools = Toolbox(read_only=_toolkit(), memory_bytes=NVCC_MEMORY_BYTES)
    compiled = compile_source(request, command, "kernel.cu", "kernel.so", tools)
    if compiled.product is None:
        return BuildReport(False, compiled.seconds, False, compiled.log)
    log = moved_library(compiled.product, library, request.symbol) or compiled.log
    if not library.exists():
        return BuildReport(False, compiled.seconds, False, log)
    sass = _sass(request, library, tools)
    kernels = with_occupancy(from_ptxas(compiled.log, sass), wanted)
    assembly = {"sass": capped(sass)} if sass else {}
    return BuildReport(True, compiled.seconds, False, log, digest(library), kernels, assembly)


def _toolkit() -> tuple[Path, ...]:
    return () if str(Path(nvcc()).resolve()).startswith("/usr/") else (Path(nvcc()).resolve().parents[1],)


def cuobjdump() -> tuple[str, Path] | None:
    """A disassembler: the toolkit's, or the one in the Triton wheel; with the folder to show."""
    beside = Path(nvcc()).resolve().parent / "cuobjdump"
    found = importlib.util.find_spec("triton")
    wheel = Path(found.origin).parent / "backends/nvidia/bin/cuobjdump" if found and found.origin else beside
    return next(((str(path), path.parent) for path in (beside, wheel) if path.exists()), None)


def _sass(request: BuildRequest, library: Path, tools: Toolbox) -> str:
    """The machine code as text; empty where there is no disassembler."""
    tool = cuobjdump()
    if tool is None:
        return ""
    env = {"PATH": f"{tool[1]}:/usr/bin:/bin"}
    shown = Toolbox((*tools.read_only, tool[1]), env, log_bytes=4 << 20)
    done = run([tool[0], "-sass", str(library)], policy(request, (library,), request.folder / "build", shown))
    return done.stdout if done.ok else ""
