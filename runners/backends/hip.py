"""HIP for AMD GPUs: a plain shared library with a C signature and a trailing stream argument, where hipcc is there;
else a static check, in which a stock clang compiles the device code for the target and nothing can be run.

Measured on two cores: 0.6 s for the device code of one kernel.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

from runners.backends.base import Artefact, Backend, BuildRequest, chosen_tunables
from runners.backends.cache import BuildCache
from runners.backends.compiling import Compiled, Toolbox, compile_source, digest, macro_text, moved_library
from runners.backends.cpp import compiler_version
from runners.backends.resources import capped, from_amdgcn
from runners.backends.rocm import rocm_directory
from runners.errors import InfraFailure
from runners.job import BuildReport, Language, Source
from runners.targets import Target, target
from runners.tunables import Space, parse

DEFAULT_FLAGS = ("-O3",)
OLDEST_CLANG = {"gfx942": 19, "gfx950": 20}
NEWEST_CLANG = 30
HIPCC_PLACES = ("/opt/rocm/bin/hipcc",)
_ALLOWED = re.compile(
    r"-O[0-3]|-Ofast|-g0?|-std=(c|gnu)\+\+(17|20|23)|-f(no-)?(fast-math|unroll-loops|slp-vectorize|vectorize|math-errno"
    r"|finite-math-only|associative-math|reciprocal-math|strict-aliasing)|-ffp-contract=(fast|on|off)"
    r"|-m(no-)?(cumode|wavefrontsize64|tgsplit)|-munsafe-fp-atomics|--gpu-max-threads-per-block=\d{2,4}"
)


class HipBackend(Backend):
    """hipcc, else clang."""

    language = Language.HIP
    kind = "native"

    def refused_flags(self, source: Source, space: Space) -> list[str]:
        """Flags of the choice or of the text that the allow-list does not know."""
        flags = [*source.flags, *(flag for flags in space.flag_sets for flag in flags)]
        return [
            f"flag {flag} is not on the list of allowed flags" for flag in flags if not _ALLOWED.fullmatch(flag)
        ]

    def build(self, request: BuildRequest) -> Artefact:
        """Compile, or take the result from the cache."""
        wanted = target(request.target)
        if wanted.vendor != "amd":
            return _refused(request, f"HIP kernels are built for AMD GPUs, not for {wanted.title}")
        device = [device_compiler(wanted.arch), *_flags(request.source), *_device_only(wanted)]
        key = hashlib.sha256(json.dumps([request.source.text, request.symbol, device, hipcc() or ""]).encode())
        entry = BuildCache("hip", key.hexdigest())
        product = request.folder / ("kernel.so" if hipcc() else "kernel.s")
        report = entry.fetch(product)
        if report is None:
            report = _compile(request, device, product)
            entry.keep(product, report)
        return Artefact(self.kind if hipcc() else "static", product if report.ok else None, request.symbol, report)


def hipcc() -> str | None:
    """ROCm's compiler driver, where it is installed."""
    found = shutil.which("hipcc")
    return found or next((place for place in HIPCC_PLACES if Path(place).exists()), None)


def device_compiler(arch: str) -> str:
    """What compiles device code for an architecture: hipcc, or a clang that knows it. Raises InfraFailure."""
    if rocm := hipcc():
        return rocm
    oldest = OLDEST_CLANG.get(arch, NEWEST_CLANG)
    for major in range(NEWEST_CLANG, oldest - 1, -1):
        if (found := shutil.which(f"clang++-{major}")) and major < 22:
            return found
    raise InfraFailure(
        f"no compiler for {arch}: hipcc of ROCm, or clang {oldest} to 21 (Debian: apt install clang-19)"
    )


def _flags(source: Source) -> list[str]:
    space = parse(source.text)
    flags = source.flags or (space.flag_sets[0] if space.flag_sets else DEFAULT_FLAGS)
    standard = [] if any(flag.startswith("-std=") for flag in flags) else ["-std=c++17"]
    macros = [f"-D{name}={macro_text(value)}" for name, value in sorted(chosen_tunables(source).items())]
    return [*standard, *flags, "-Wall", "-Wno-unused-command-line-argument", *macros]


def _device_only(wanted: Target) -> list[str]:
    where = [] if hipcc() else [f"--rocm-path={rocm_directory()}", f"--hip-version={_hip_version()}"]
    return ["-x", "hip", f"--offload-arch={wanted.arch}", "--cuda-device-only", *where, "-S"]


def _hip_version() -> str:
    fields = dict(line.split("=") for line in (rocm_directory() / "share/hip/version").read_text().splitlines())
    return f"{fields['HIP_VERSION_MAJOR']}.{fields['HIP_VERSION_MINOR']}"


def _compile(request: BuildRequest, device: list[str], product: Path) -> BuildReport:
    tools = Toolbox(read_only=_shown())
    assembled = compile_source(request, device, "kernel.hip", "kernel.s", tools)
    if assembled.product is None:
        return BuildReport(False, assembled.seconds, False, assembled.log)
    text = assembled.product.read_text(errors="replace")
    linked = _link(request, device, assembled, product, tools)
    log = linked.log if linked.product is None else assembled.log
    ok, seconds = product.exists(), assembled.seconds + linked.seconds
    artefact_hash = digest(product) if ok else None
    return BuildReport(ok, seconds, False, log, artefact_hash, from_amdgcn(text), {"amdgcn": capped(text)})


def _link(request: BuildRequest, device: list[str], assembled: Compiled, product: Path, tools: Toolbox) -> Compiled:
    """The shared library with hipcc; without it the assembly is all there is."""
    if hipcc() is None:
        shutil.copyfile(assembled.loadable, product)
        return Compiled(product, "", 0.0)
    command = [*(word for word in device if word not in ("--cuda-device-only", "-S")), "-shared", "-fPIC"]
    linked = compile_source(request, command, "kernel.hip", "kernel.so", tools)
    if linked.product is None:
        return linked
    complaint = moved_library(linked.product, product, request.symbol)
    return Compiled(None if complaint else product, complaint or linked.log, linked.seconds)


def _shown() -> tuple[Path, ...]:
    if hipcc() is None:
        return (rocm_directory(),)
    return tuple({path for path in (Path("/opt/rocm"), Path("/opt/rocm").resolve()) if path.exists()})


def _refused(request: BuildRequest, why: str) -> Artefact:
    return Artefact("static", None, request.symbol, BuildReport(False, 0.0, False, why))


def versions(arch: str) -> str:
    """First line of the compiler's version."""
    return compiler_version(device_compiler(arch))
