"""Build HIP for AMD GPUs: with hipcc a shared library, without it a static check of the device code.

The library has a C signature and a trailing stream argument. Without hipcc, a stock clang compiles the device code
for the target, and nothing can be run.

Measured on two cores: 0.6 s for the device code of one kernel.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.backends.compiling import Compiled, Toolbox, compile_source, digest, moved_library
from runners.backends.mca import llvm_mca, simulator
from runners.backends.native import NativeBackend
from runners.backends.resources import capped, from_amdgcn
from runners.backends.rocm import rocm_directory
from runners.errors import InfraFailure
from runners.job import BuildReport, KernelResources, Language
from runners.targets import Target, target

OLDEST_CLANG = {"gfx942": 19, "gfx950": 20}
NEWEST_CLANG = 30
HIPCC_PLACES = ("/opt/rocm/bin/hipcc",)
_ALLOWED = re.compile(
    r"-O[0-3]|-Ofast|-g0?|-std=(c|gnu)\+\+(17|20|23)|-f(no-)?(fast-math|unroll-loops|slp-vectorize|vectorize|math-errno"
    r"|finite-math-only|associative-math|reciprocal-math|strict-aliasing)|-ffp-contract=(fast|on|off)"
    r"|-m(no-)?(cumode|wavefrontsize64|tgsplit)|-munsafe-fp-atomics|--gpu-max-threads-per-block=\d{2,4}"
)


class HipBackend(NativeBackend):
    """Build with hipcc; without it, check the device code with clang."""

    language = Language.HIP
    title = Language.HIP.label
    vendor = "amd"
    vendor_title = "AMD"
    source_name = "kernel.hip"
    default_flags = ("-O3",)
    default_standard = "-std=c++17"
    allowed_flags = _ALLOWED

    def compiler(self, request: BuildRequest) -> str:
        """Return the path of hipcc, or of a clang that knows the architecture. Raises InfraFailure."""
        return device_compiler(target(request.target).arch)

    def fixed_flags(self, request: BuildRequest) -> list[str]:
        """Return the flags for assembly of the device code."""
        return ["-Wall", "-Wno-unused-command-line-argument", *_device_only(target(request.target))]

    def fingerprint(self, command: list[str]) -> list[str]:
        """Return the paths of hipcc and of llvm-mca, empty where they are not installed."""
        return [hipcc() or "", llvm_mca() or ""]

    def product_name(self) -> str:
        """Return the library's name, or that of the assembly, which is all that a stock clang makes."""
        return "kernel.so" if hipcc() else "kernel.s"

    def product_kind(self) -> str:
        """Return `native` for a library, `static` for assembly that nothing can run."""
        return self.kind if hipcc() else "static"

    def tools(self) -> Toolbox:
        """Return what the compiler needs: ROCm, or the device libraries that stand in for it."""
        return Toolbox(read_only=_shown())

    def compile(self, request: BuildRequest, command: list[str], product: Path) -> BuildReport:
        """Compile the device code to assembly, which tells its resources, and link a library where hipcc is there."""
        tools = self.tools()
        assembled = compile_source(request, command, self.source_name, "kernel.s", tools)
        if assembled.product is None:
            return BuildReport(False, assembled.seconds, False, assembled.log)
        kernels, assembly = self.inspect(request, assembled.product, assembled.log)
        linked = _link(request, command, assembled, product, tools)
        log = linked.log if linked.product is None else assembled.log
        ok, seconds = product.exists(), assembled.seconds + linked.seconds
        return BuildReport(ok, seconds, False, log, digest(product) if ok else None, kernels, assembly)

    def inspect(
        self, request: BuildRequest, product: Path, log: str
    ) -> tuple[list[KernelResources], dict[str, str]]:
        """Return what the assembly at `product` says of each kernel, and the assembly."""
        text = product.read_text(errors="replace")
        return from_amdgcn(text, simulator(request)), {"amdgcn": capped(text)}


def hipcc() -> str | None:
    """Return the path of ROCm's compiler driver, or None if it is not installed."""
    found = shutil.which("hipcc")
    return found or next((place for place in HIPCC_PLACES if Path(place).exists()), None)


def device_compiler(arch: str) -> str:
    """Return the compiler of device code for an architecture: hipcc, or a clang that knows it. Raises InfraFailure."""
    if rocm := hipcc():
        return rocm
    oldest = OLDEST_CLANG.get(arch, NEWEST_CLANG)
    for major in range(NEWEST_CLANG, oldest - 1, -1):
        if (found := shutil.which(f"clang++-{major}")) and major < 22:
            return found
    raise InfraFailure(
        f"no compiler for {arch}: hipcc of ROCm, or clang {oldest} to 21 (Debian: apt install clang-19)"
    )


def _device_only(wanted: Target) -> list[str]:
    where = [] if hipcc() else [f"--rocm-path={rocm_directory()}", f"--hip-version={_hip_version()}"]
    return ["-x", "hip", f"--offload-arch={wanted.arch}", "--cuda-device-only", *where, "-S"]


def _hip_version() -> str:
    fields = dict(line.split("=") for line in (rocm_directory() / "share/hip/version").read_text().splitlines())
    return f"{fields['HIP_VERSION_MAJOR']}.{fields['HIP_VERSION_MINOR']}"


def _link(request: BuildRequest, device: list[str], assembled: Compiled, product: Path, tools: Toolbox) -> Compiled:
    """Link the shared library with hipcc; without it, keep the assembly as the product."""
    if hipcc() is None:
        shutil.copyfile(assembled.loadable, product)
        return Compiled(product, "", 0.0)
    # The same command without the words that stop after the device's assembly.
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
