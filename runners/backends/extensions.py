"""Compile the CUDA sources of torch extensions for a device that is absent, and read the compiler's report.

Modules that compile an extension with torch's `load_inline` or `load` are the most common form of CUDA candidates. The
recorder (`triton_record`) notes their CUDA sources and flags. This module has nvcc compile the device code of each, in
the sandbox, against torch's headers. Bindings and C++ texts are compiled on the device's machine only.

A candidate is refused only for an error that is certainly its own. `headers/` replaces headers that this machine lacks
by stubs, so an error that may come from a stub, a missing library or a flag that was left out refuses nothing.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.backends.base import BuildRequest
from runners.backends.compiling import Toolbox, compile_source
from runners.backends.cpp import compiler_version
from runners.backends.cuda import SPECIFIC, CudaBackend, nvcc, sass_of
from runners.backends.resources import capped, from_ptxas, with_occupancy
from runners.errors import InfraFailure
from runners.job import KernelResources, Language, Source
from runners.targets import Target

# What is compiled at most; hostile code may have written the report.
MOST_EXTENSIONS, MOST_TEXTS, MOST_FLAGS, MOST_CHARS = 4, 16, 64, 1 << 20
MOST_KERNELS = 64
MOST_ERROR = 8000
_HEADERS = Path(__file__).with_name("headers")
_ABSENT = _HEADERS / "absent"
# What torch's own compilation puts before a CUDA source.
_PROLOGUE = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
# Flags that an extension may have beside those that the language CUDA allows.
_FURTHER_FLAGS = re.compile(r"-[DU]\w{1,100}(=[\w.+-]{0,100})?")
# Flags that are left out and decide nothing about whether a text compiles, except where headers are.
_NEEDLESS_FLAGS = re.compile(
    r"-[IL].*|-l.*|--?gencode.*|--?arch.*|--?gpu-.*|arch=.*|--?threads.*|-t=?\d*|\d+|-Xptxas.*|--ptxas-options.*|-v|-w"
    r"|--?verbose|--?resource-usage|--?source-in-ptx|--?generate-line-info|-g",
    re.DOTALL,
)
_SPECIFIC = re.compile(r"(?:sm_|compute_)\d{2,3}a\b")
# Libraries whose headers are stood in for, or absent, and Python's bindings.
_FOREIGN = re.compile(
    r"\b(?:cublas|cusparse|cusolver|cudnn|cufft|curand|nvtx|nvrtc|nvjitlink|cutlass|cute|pybind11|py|PyObject|Py)\w*",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"^(?P<file>[^\n(]{1,300})\((?P<line>\d{1,9})\): (?:catastrophic )?error[^:\n]*: (?P<text>.*)$", re.M
)
_ASSEMBLER_ERROR = re.compile(r"^ptxas (?:fatal|error)\b.*$|^ptxas [^\n]*; (?:error|fatal)\b.*$", re.M)
_MISSING = re.compile(r"fatal error: (?P<header>[^\n:]{1,200}): No such file")


@dataclass(frozen=True)
class Extension:
    """Describe an extension as the recorder noted it: its name, its CUDA sources, and the flags for nvcc."""

    name: str
    texts: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def source(self) -> str:
        """Return one text for the compiler, whose messages name the candidate's own texts and lines."""
        parts = [f'#line 1 "{self.name}, CUDA source {n}"\n{text}\n' for n, text in enumerate(self.texts, start=1)]
        return _PROLOGUE + "".join(parts)

    @property
    def used_flags(self) -> list[str]:
        """Return the flags that are passed to nvcc."""
        known = (f for f in self.flags if CudaBackend.allowed_flags.fullmatch(f) or _FURTHER_FLAGS.fullmatch(f))
        return [flag for flag in known if not flag.startswith("-l")]

    @property
    def misses_flags(self) -> bool:
        """Return whether a flag is left out without which the source may not compile."""
        left_out = (flag for flag in self.flags if flag not in self.used_flags)
        return not all(_NEEDLESS_FLAGS.fullmatch(flag) for flag in left_out)

    @property
    def wants_specific(self) -> bool:
        """Return whether it asks for the architecture-specific target, without which there is no wgmma."""
        return any(map(_SPECIFIC.search, self.flags))


@dataclass
class Found:
    """Hold the compiler's report: why it refused an extension, why one was not compiled, and the compiled kernels."""

    refusal: str = ""
    unfinished: str = ""
    kernels: list[KernelResources] = field(default_factory=list)
    assembly: dict[str, str] = field(default_factory=dict)


def fingerprint() -> list[str]:
    """Return what decides about a result besides the candidate: this module, the stubs and the compiler."""
    files = [Path(__file__), *sorted(_HEADERS.rglob("*.h"))]
    try:
        compiler = compiler_version(nvcc())
    except InfraFailure:
        compiler = ""
    return [compiler, *(file.read_text() for file in files)]


def extensions_in(answer: Mapping[str, Any]) -> list[Extension]:
    """Return the extensions of a recorder's answer that have CUDA sources. Hostile code may have written the answer."""
    noted = answer.get("extensions")
    found = map(_extension, noted[:MOST_EXTENSIONS] if isinstance(noted, list) else [])
    return [one for one in found if one is not None and one.texts]


def _extension(noted: Any) -> Extension | None:
    if not isinstance(noted, dict):
        return None
    texts, flags = _texts(noted.get("texts")), _texts(noted.get("flags"))
    if len(texts) > MOST_TEXTS or len(flags) > MOST_FLAGS or any(len(text) > MOST_CHARS for text in texts):
        return None  # the compiler could refuse a part of what is right as a whole
    name = re.sub(r"\W", "_", str(noted.get("name"))[:100])
    return Extension(name, tuple(texts), tuple(flags))


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def compiled(request: BuildRequest, extensions: Sequence[Extension], wanted: Target) -> Found:
    """Compile the extensions for the target, up to the first that is refused."""
    found = Found()
    if not extensions:
        return found
    if wanted.vendor != "nvidia":
        found.unfinished = f"extensions for {wanted.title} are compiled on its own machine"
        return found
    try:
        nvcc()
    except InfraFailure as missing:
        found.unfinished = str(missing)
        return found
    for number, extension in enumerate(extensions):
        _compile(request, extension, wanted, number, found)
        if found.refusal:
            break
    return found


def _compile(request: BuildRequest, extension: Extension, wanted: Target, number: int, found: Found) -> None:
    """Compile one extension's device code, and add to what was found."""
    cuda = CudaBackend()
    text = dataclasses.replace(request, source=Source(Language.CUDA, extension.source))
    tools = cuda.tools()
    shown = Toolbox((*tools.read_only, *_include_folders()), memory_bytes=2 * tools.memory_bytes, log_bytes=4 << 20)
    product = f"extension{number}.cubin"
    made = compile_source(text, _command(extension, wanted), f"extension{number}.cu", product, shown)
    if made.product is None:
        refusal, unfinished = _why(made.log, extension)
        found.refusal, found.unfinished = found.refusal or refusal, found.unfinished or unfinished
        return
    sass = sass_of(request, made.product, tools)
    kernels = with_occupancy(from_ptxas(made.log, sass), wanted)
    found.kernels += kernels[: MOST_KERNELS - len(found.kernels)]
    if sass:
        found.assembly[f"sass:{extension.name}:{number}"] = capped(sass)


def _command(extension: Extension, wanted: Target) -> list[str]:
    number = wanted.arch.removeprefix("sm_")
    number = SPECIFIC.get(wanted.arch, number) if extension.wants_specific else number
    flags = extension.used_flags
    standard = [] if any(flag.startswith("-std=") for flag in flags) else ["-std=c++17"]
    folders = [f"-I{folder}" for folder in _include_folders() if folder != _ABSENT]
    return [
        nvcc(), *standard, *flags, *folders, "-isystem", str(_ABSENT),
        "-cubin", "-gencode", f"arch=compute_{number},code=sm_{number}", "-Xptxas", "-v", "-w", "--threads", "1",
        f"-DTORCH_EXTENSION_NAME={extension.name}",
    ]  # fmt: skip


def _include_folders() -> tuple[Path, ...]:
    """Return the folders of headers in their order: our stubs, torch's, and last the stubs for missing libraries."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise InfraFailure("no torch on this machine: pip install torch")
    include = Path(found.origin).parent / "include"
    return (_HEADERS, include, include / "torch/csrc/api/include", _ABSENT)


def _why(log: str, extension: Extension) -> tuple[str, str]:
    """Return why the candidate is refused and "", or "" and why its extension is compiled on the device only."""
    if missing := _MISSING.search(log):
        return "", f"{extension.name} needs {missing['header']}, which is not on this machine"
    own = [*_own_errors(log, extension), *(match[0] for match in _ASSEMBLER_ERROR.finditer(log))]
    if not own:
        return "", f"{extension.name} was not compiled here: {log[-500:]}"
    if extension.misses_flags:
        return "", f"{extension.name} was not compiled here with all of its flags: {own[0][:300]}"
    if foreign := next((error for error in own if _FOREIGN.search(error)), None):
        return "", f"{extension.name} needs a library that is not on this machine: {foreign[:300]}"
    return "\n".join(own)[:MOST_ERROR], ""


def _own_errors(log: str, extension: Extension) -> Iterator[str]:
    """Yield the errors in the candidate's texts; those in headers may come from another version of torch."""
    for match in _ERROR.finditer(log):
        if match["file"].startswith(f"{extension.name}, CUDA source"):
            yield match[0]
