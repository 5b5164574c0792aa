"""Build CUDA with nvcc: a plain shared library with a C signature and a trailing stream argument.

It includes no headers of torch, which are what makes torch's load_inline take tens of seconds.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.backends.compiling import Toolbox, policy
from runners.backends.cpp import compiler_version
from runners.backends.native import NativeBackend
from runners.backends.resources import capped, from_ptxas, with_occupancy
from runners.errors import InfraFailure
from runners.job import KernelResources, Language
from runners.sandbox import run
from runners.targets import target

FIXED_FLAGS = ("--shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v", "--threads", "1")
# Architectures whose matrix instructions need the architecture-specific target.
SPECIFIC = {"sm_90": "90a", "sm_100": "100a"}
NVCC_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")
NVCC_MEMORY_BYTES = 4 << 30
# As for C++: flags that generate code, and the two libraries that a candidate may link.
_ALLOWED = re.compile(
    r"-O[0-3]|-G|-lineinfo|-std=c\+\+(17|20)|--?(use_fast_math|extra-device-vectorization|expt-relaxed-constexpr"
    r"|expt-extended-lambda|restrict)|--?maxrregcount=\d{1,3}|--?fmad=(true|false)|--?ftz=(true|false)"
    r"|--?prec-(div|sqrt)=(true|false)|-lcublas|-lcublasLt"
)


class CudaBackend(NativeBackend):
    """Build with nvcc."""

    language = Language.CUDA
    title = Language.CUDA.label
    vendor = "nvidia"
    vendor_title = "NVIDIA"
    source_name = "kernel.cu"
    default_flags = ("-O3",)
    default_standard = "-std=c++17"
    allowed_flags = _ALLOWED

    def compiler(self, request: BuildRequest) -> str:
        """Return the path of nvcc. Raises InfraFailure."""
        return nvcc()

    def fixed_flags(self, request: BuildRequest) -> list[str]:
        """Return the flags for a shared library for the target's architecture."""
        arch = target(request.target).arch
        # The generic target of the same number has no wgmma or tcgen05 instructions.
        number = SPECIFIC.get(arch, arch.removeprefix("sm_"))
        return ["-gencode", f"arch=compute_{number},code=sm_{number}", *FIXED_FLAGS]

    def fingerprint(self, command: list[str]) -> list[str]:
        """Return the compiler's version."""
        return [compiler_version(command[0])]

    def tools(self) -> Toolbox:
        """Return what nvcc needs: its toolkit, and more memory than a candidate."""
        return Toolbox(read_only=_toolkit(), memory_bytes=NVCC_MEMORY_BYTES)

    def inspect(
        self, request: BuildRequest, product: Path, log: str
    ) -> tuple[list[KernelResources], dict[str, str]]:
        """Return what ptxas and the machine code say, and the machine code where there is a disassembler."""
        sass = sass_of(request, product, self.tools())
        kernels = with_occupancy(from_ptxas(log, sass), target(request.target))
        return kernels, {"sass": capped(sass)} if sass else {}


def nvcc() -> str:
    """Return the path of CUDA's compiler. Raises InfraFailure."""
    for name in (os.environ.get("KERNELSCI_NVCC"), *NVCC_PLACES, "nvcc"):
        if name and (found := shutil.which(name)):
            return found
    raise InfraFailure("no nvcc: install the CUDA toolkit")


def _toolkit() -> tuple[Path, ...]:
    return () if str(Path(nvcc()).resolve()).startswith("/usr/") else (Path(nvcc()).resolve().parents[1],)


def cuobjdump() -> tuple[str, Path] | None:
    """Return a disassembler, the toolkit's or the one in the Triton wheel, and the folder to show in the sandbox."""
    beside = Path(nvcc()).resolve().parent / "cuobjdump"
    found = importlib.util.find_spec("triton")
    wheel = Path(found.origin).parent / "backends/nvidia/bin/cuobjdump" if found and found.origin else beside
    return next(((str(path), path.parent) for path in (beside, wheel) if path.exists()), None)


def sass_of(request: BuildRequest, library: Path, tools: Toolbox) -> str:
    """Return the machine code of a library or a cubin as text, empty if there is no disassembler."""
    tool = cuobjdump()
    if tool is None:
        return ""
    env = {"PATH": f"{tool[1]}:/usr/bin:/bin"}
    shown = Toolbox((*tools.read_only, tool[1]), env, log_bytes=4 << 20)
    done = run([tool[0], "-sass", str(library)], policy(request, (library,), request.folder / "build", shown))
    return done.stdout if done.ok else ""
