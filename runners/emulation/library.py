"""Compile a HIP or CUDA source to a library of the host that emulates its device.

clang puts a call before every memory access (its thread sanitizer's instrumentation); our runtime answers these calls
itself, so that no sanitizer's library is needed. Measured on two cores: 0.4 s a candidate, 0.7 s once for the runtime.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from runners.backends.base import Artefact, BuildRequest, chosen_tunables
from runners.backends.cache import BuildCache
from runners.backends.compiling import Toolbox, compile_source, digest, macro_text, moved_library
from runners.backends.cpp import compiler_version, processor
from runners.emulation.rewriting import NotCovered, rewritten
from runners.errors import InfraFailure
from runners.job import BuildReport, Language
from runners.state import state_dir
from runners.targets import Target, target

DEVICE = Path(__file__).parent / "device"
LANGUAGES = {Language.HIP: "amd", Language.CUDA: "nvidia"}
# Seconds of processor time that all kernels of a process may take together.
KERNELS_S = 6.0
# Older ones lack what the header relies on, such as a __builtin_bit_cast of vectors.
CLANGS = ("clang++-19", "clang++-20", "clang++-21", "clang++-18", "clang++-17")
RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-w")
INSTRUMENTED = (
    *("-Xclang", "-fsanitize=thread", "-mllvm", "-tsan-distinguish-volatile"),
    *("-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-read-before-write"),
    *("-fsanitize=local-bounds", "-fsanitize-trap=local-bounds"),
)
FIXED_FLAGS = (
    *("-O1", "-fPIC", "-shared", "-fdeclspec", "-w", "-march=native", "-ferror-limit=8"),
    # The device rounds half precision after every operation, and its compiler vectorises nothing across threads.
    *("-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-fno-builtin-printf", "-fno-strict-aliasing", "-Wl,-Bsymbolic"),
)
_ERROR = re.compile(r"kernel\.cpp:(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.+)")
_BUILTIN = re.compile(r"'(__builtin_\w+|__(?:nv|hip|ocml|ockl)_\w+)'")
_STANDARD = re.compile(r"-std=(?:c|gnu)\+\+(?:17|20|23)")


def serves(language: Language, key: str) -> bool:
    """Return whether kernels of a language for a target can be emulated on this machine."""
    return LANGUAGES.get(language) == target(key).vendor and _clang() is not None


def build(request: BuildRequest) -> Artefact:
    """Compile a source, or take the library from the cache.

    Raises NotCovered naming what the emulation lacks, since the device's own compiler has taken the source before.
    """
    text = rewritten(request.source.text)
    command = _command(request, target(request.target))
    key = hashlib.sha256(json.dumps([text, request.symbol, command, _fingerprint()]).encode()).hexdigest()
    entry, library = BuildCache("emulated", key), request.folder / "emulated.so"
    report = entry.fetch(library)
    if report is None:
        report = _compiled(request, text, command, library)
        entry.keep(library, report)
    if not report.ok:
        raise NotCovered(_gap(report.log))
    environment = {"KERNELSCI_EMULATION_S": f"{KERNELS_S:g}"}
    return Artefact("emulated", library, request.symbol, report, environment, timed=False)


def _compiled(request: BuildRequest, text: str, command: list[str], library: Path) -> BuildReport:
    runtime = request.folder / "runtime.o"
    shutil.copyfile(_runtime(target(request.target)), runtime)
    runtime.chmod(0o644)
    linked = ["-x", "none", str(runtime), "-x", "c++"]
    tools = Toolbox(read_only=(DEVICE, runtime))
    plain = replace(request, source=replace(request.source, text=text))
    compiled = compile_source(plain, [*command, *linked], "kernel.cpp", library.name, tools)
    if compiled.product is None:
        return BuildReport(False, compiled.seconds, False, compiled.log)
    complaint = moved_library(compiled.product, library, request.symbol)
    if complaint is not None:
        return BuildReport(False, compiled.seconds, False, complaint)
    return BuildReport(True, compiled.seconds, False, compiled.log, digest(library))


def _command(request: BuildRequest, wanted: Target) -> list[str]:
    """Return the command line without source, runtime and product. Of a candidate's flags, only the standard counts."""
    standard = next((flag for flag in request.source.flags if _STANDARD.fullmatch(flag)), "-std=c++17")
    tunables = sorted(chosen_tunables(request.source).items())
    macros = [f"-D{name}={macro_text(value)}" for name, value in tunables]
    # GNU's mode has __VA_OPT__, which the header's launches need, before C++20.
    standard = standard.replace("-std=c++", "-std=gnu++")
    return [_required_clang(), standard, *FIXED_FLAGS, *INSTRUMENTED, *_device_macros(wanted), *macros]


def _device_macros(wanted: Target) -> list[str]:
    """Return what the header and the candidate know of the device."""
    macros = [
        f"-DEMU_WAVE={wanted.wavefront}",
        f"-DEMU_LDS_BYTES={wanted.lds_bytes}",
        f"-DEMU_UNITS={wanted.units}",
    ]
    macros += [f'-DEMU_ARCH="{wanted.arch}"', f"-I{DEVICE / 'include'}"]
    if wanted.vendor == "nvidia":
        return [*macros, "-D__CUDACC__", f"-D__CUDA_ARCH__={wanted.arch.removeprefix('sm_')}0", "-DEMU_FP8_OCP"]
    macros += [f"-D__{wanted.arch}__", "-D__HIP_PLATFORM_AMD__=1", "-D__HIP_DEVICE_COMPILE__=1", "-D__HIPCC__=1"]
    return macros if wanted.arch == "gfx942" else [*macros, "-DEMU_FP8_OCP"]


def _runtime(wanted: Target) -> Path:
    """Return the compiled runtime for a device, made on first use. It is our own code, so no sandbox is needed."""
    macros = [flag for flag in _device_macros(wanted) if flag.startswith(("-DEMU_WAVE", "-DEMU_LDS", "-I"))]
    key = hashlib.sha256("\n".join([*macros, *_fingerprint()]).encode()).hexdigest()[:32]
    product = state_dir("emulation") / f"{key}.o"
    if product.exists():
        return product
    with tempfile.TemporaryDirectory(dir=product.parent) as folder:
        made = Path(folder) / "runtime.o"
        command = [_required_clang(), *RUNTIME_FLAGS, *macros, "-c", str(DEVICE / "runtime.cpp"), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise InfraFailure(f"the emulator does not compile: {done.stderr[-400:]}")
        made.replace(product)
    return product


def _fingerprint() -> list[str]:
    """Return what a library depends on besides its source and command: compiler, processor and our own files."""
    files = sorted(path for path in DEVICE.rglob("*") if path.is_file())
    ours = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    return [compiler_version(_required_clang()), processor(), ours]


def _gap(log: str) -> str:
    """Return in words what kept a source from being emulated: the builtin, else the compiler's first error."""
    found = _ERROR.search(log)
    if found is None:
        return log.strip().splitlines()[0][:200] if log.strip() else "the emulator's compiler failed"
    builtin = _BUILTIN.search(found["text"])
    what = f"{builtin[1]} is not covered" if builtin else found["text"][:160]
    return f"{what} (line {found['line']})"


def _clang() -> str | None:
    return next((path for name in CLANGS if (path := shutil.which(name))), None)


def _required_clang() -> str:
    if (found := _clang()) is None:
        raise InfraFailure("no clang for the emulation of device code (Debian: apt install clang-19)")
    return found
