"""Build Triton candidates: Python modules whose kernels are compiled for the target before anything runs on it.

On a machine without the target the candidate's entry point runs on fake tensors and every launch compiles instead
(`triton_record`), in the sandbox. On the CPU the interpreter checks correctness and is never timed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from runners.backends import extensions
from runners.backends.base import Artefact, BuildRequest, SampleArgument
from runners.backends.cache import is_of_the_machine
from runners.backends.compiling import Toolbox, check_room, log_of, policy
from runners.backends.mca import llvm_mca, simulator
from runners.backends.python import MODULE_FILE, PythonBackend
from runners.backends.resources import (
    PTX_MATRIX,
    Simulator,
    capped,
    from_amdgcn,
    from_sass_usage,
    with_occupancy,
)
from runners.backends.torch_device import torch_device
from runners.candidate.names import PRETENDED_DEVICE
from runners.errors import InfraFailure
from runners.job import BuildReport, KernelResources, Language
from runners.sandbox import ResultFileError, Sandboxed, python_paths, read_result_file, spawn
from runners.state import read_json, state_dir, write_json
from runners.static_features import VERSION
from runners.targets import Target, target
from runners.wire import from_plain, to_plain, travels

RECORDER = Path(__file__).with_name("triton_record.py")
DEVICE_STAND_IN = Path(__file__).parents[1] / "candidate" / "pretended_device.py"
RECORD_MEMORY_BYTES = 6 << 30
# What the recorder writes at most (`triton_record`); a module that writes its own report may claim more.
MOST_VARIANTS, MOST_ERROR, MOST_EXTRA, MOST_SHARED_BYTES = 64, 64 << 10, 4096, 1 << 30
# CUDA's limit of a grid's first extent; HIP's is lower.
MOST_PROGRAMS = 2**31 - 1
# Triton's passes print these to standard error. The last one says only that there were failures.
DIAGNOSTIC = re.compile(
    rf"^\S*/{re.escape(MODULE_FILE)}:(\d+:\d+: error: (?!Failures have been detected).*)$", re.MULTILINE
)
MOST_DIAGNOSTICS, MOST_DIAGNOSTIC = 3, 1000
ANSWER_BYTES = 64 << 20
# What follows is why; the module may be right, and only need a device.
UNFINISHED = "The static build ended early; the remaining kernels are compiled on the device"
INTERPRETED = {"TRITON_INTERPRET": "1"}


class TritonBackend(PythonBackend):
    """Prepare a module, and compile its kernels for the target if the shapes of its calls are known."""

    language = Language.TRITON

    def build(self, request: BuildRequest) -> Artefact:
        """Write the module; on a GPU target compile what its calls launch."""
        artefact = super().build(request)
        wanted = target(request.target)
        if artefact.path is None:
            return artefact
        if wanted.family == "cpu":
            absent = (
                {PRETENDED_DEVICE: json.dumps(torch_device(target(request.for_target)))}
                if request.for_target
                else {}
            )
            return dataclasses.replace(artefact, env=INTERPRETED | absent, timed=False)
        return with_record(request, artefact, wanted) if request.samples else artefact


class ModuleBackend(PythonBackend):
    """Prepare a Python module, and compile the extensions that it would compile on a device that is absent."""

    def build(self, request: BuildRequest) -> Artefact:
        """Write the module; for a static build, compile the extensions that its calls would compile."""
        artefact = super().build(request)
        wanted = target(request.target)
        if artefact.path is None or not request.samples or wanted.family == "cpu":
            return artefact
        absent = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
        if absent or not request.source.compiles_extension:
            return artefact
        return with_record(request, artefact, wanted)


def with_record(request: BuildRequest, artefact: Artefact, wanted: Target) -> Artefact:
    """Return a module's artefact with the report of its static build, and without a path if that failed."""
    report = _recorded(request, artefact.loadable, wanted)
    return dataclasses.replace(artefact, path=artefact.path if report.ok else None, report=report)


def _recorded(request: BuildRequest, module: Path, wanted: Target) -> BuildReport:
    """Return the report of a static build, from the cache if the same text was built for the same calls."""
    kept = state_dir("builds", "triton") / f"{_key(request, module, wanted)}.json"
    found = read_json(kept)
    if isinstance(found, dict) and not is_of_the_machine(report := from_plain(BuildReport, found)):
        return dataclasses.replace(report, cached=True)
    report = _record(request, module, wanted)
    if not is_of_the_machine(report):
        write_json(kept, to_plain(report))
    return report


def _key(request: BuildRequest, module: Path, wanted: Target) -> str:
    parts = [
        module.read_text(),
        to_plain(list(request.samples)),
        wanted.key,
        RECORDER.read_text(),
        DEVICE_STAND_IN.read_text(),
    ]
    parts += [request.source.language.value, VERSION, llvm_mca() or "", extensions.fingerprint()]
    return hashlib.sha256(json.dumps([*parts, _version("triton"), _version("torch")]).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise InfraFailure(f"no {package} on this machine: pip install {package}") from None


def _record(request: BuildRequest, module: Path, wanted: Target) -> BuildReport:
    out = request.folder / "build"
    out.mkdir(exist_ok=True)
    spec = request.folder / "spec.json"
    spec.write_text(json.dumps(_spec(request, module, wanted)))
    spec.chmod(0o644)
    tools = Toolbox((RECORDER, DEVICE_STAND_IN, spec, module, *python_paths()), memory_bytes=RECORD_MEMORY_BYTES)
    argv = [sys.executable, "-I", str(RECORDER), str(spec), str(out / "record.json")]
    started = time.monotonic()
    process = spawn(argv, policy(request, (), out, tools), preloaded=("torch", "triton"))
    done = process.outcome()
    seconds, log = time.monotonic() - started, log_of(done, request.limits.build_s)
    answer = _answer(process, out)
    if answer is None:
        check_room(out)
        return BuildReport(False, seconds, False, log or "the compiler left no report")
    try:
        report = _report(request, wanted, answer, seconds, log)
    # The module has run in the process that wrote the report, and may have written anything.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return BuildReport(False, seconds, False, f"the compiler's report cannot be read: {type(error).__name__}")
    # What the host does between its kernels is part of what is built.
    parts = [request.source.content_hash, report.artefact_hash]
    whole = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    seconds = time.monotonic() - started
    return dataclasses.replace(report, seconds=seconds, artefact_hash=whole if report.ok else None)


def _spec(request: BuildRequest, module: Path, wanted: Target) -> dict[str, Any]:
    calls = [
        {"maker": sample} if isinstance(sample, str) else {"arguments": [_plain(argument) for argument in sample]}
        for sample in request.samples
    ]
    strict = request.source.language is Language.TRITON
    own = {"module": str(module), "pretended_device": str(DEVICE_STAND_IN), "calls": calls, "strict": strict}
    return {**own, **torch_device(wanted)}


def _plain(argument: SampleArgument) -> dict[str, Any]:
    if argument.spec is None:
        return {"scalar": argument.scalar}
    return {"dtype": argument.spec.dtype, "shape": argument.spec.shape, "strides": argument.spec.strides}


def _answer(process: Sandboxed, out: Path) -> dict[str, Any] | None:
    try:
        answer = json.loads(read_result_file(out, "record.json", ANSWER_BYTES, process.uid))
    except (ResultFileError, ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("variants"), list) else None


def _report(request: BuildRequest, wanted: Target, answer: dict[str, Any], seconds: float, log: str) -> BuildReport:
    error = capped(with_diagnostics(str(answer.get("error") or ""), log), MOST_ERROR)
    variants = [variant for variant in answer["variants"] if isinstance(variant, dict)][:MOST_VARIANTS]
    simulate = simulator(request) if wanted.vendor == "amd" else None
    kernels = [_resources(variant, simulate) for variant in variants]
    assembly: dict[str, str] = {}
    for number, variant in enumerate(variants):
        for kind, text in dict(variant.get("assembly") or {}).items():
            title = f"{str(kind)[:20]}:{str(variant.get('name'))[:200]}:{number}"
            assembly.setdefault(title, capped(str(text), (1 << 20) // len(variants)))
    noted = [] if error else extensions.extensions_in(answer)
    found = extensions.compiled(request, noted, wanted)
    error = error or found.refusal
    if unfinished := found.unfinished or capped(str(answer.get("unfinished") or ""), MOST_ERROR):
        log = f"{log}\n{UNFINISHED}: {unfinished}".strip()
    elif not variants and not error and not noted:
        log = f"{log}\nno Triton kernel was launched".strip()
    if wanted.vendor == "nvidia":
        kernels = with_occupancy(kernels, wanted)
    hexdigest = hashlib.sha256(json.dumps(variants).encode()).hexdigest()
    kernels, assembly = [*kernels, *found.kernels][:MOST_VARIANTS], {**assembly, **found.assembly}
    return BuildReport(not error, seconds, False, error or log, None if error else hexdigest, kernels, assembly)


def with_diagnostics(error: str, log: str) -> str:
    """Return an error followed by what the compiler printed about the candidate's lines.

    If a pass fails, the exception itself says only `PassManager::run failed`.
    """
    found = list(dict.fromkeys(DIAGNOSTIC.findall(log)))[:MOST_DIAGNOSTICS] if error else []
    return "\n".join([error.rstrip(), *(capped(f"{MODULE_FILE}:{line}", MOST_DIAGNOSTIC) for line in found)])


def _resources(variant: dict[str, Any], simulate: Simulator | None) -> KernelResources:
    """Return the resources of one compiled variant, with its launch options and constants."""
    texts = {kind: str(text) for kind, text in dict(variant.get("assembly") or {}).items()}
    stated = {key: variant.get(key) for key in ("constants", "num_warps", "num_stages")}
    extra = {key: value for key, value in stated.items() if len(json.dumps(value)) <= MOST_EXTRA and travels(value)}
    shared = variant.get("shared_bytes")
    found = from_amdgcn(texts.get("amdgcn", ""), simulate) or from_sass_usage(
        str(variant.get("usage") or ""), str(variant.get("sass") or "")
    )
    base = found[0] if found else KernelResources(str(variant.get("name"))[:200])
    if not found and "ptx" in texts:
        base = dataclasses.replace(base, matrix_instructions=len(PTX_MATRIX.findall(texts["ptx"])))
    lds_bytes = shared if type(shared) is int and 0 <= shared <= MOST_SHARED_BYTES else base.lds_bytes
    programs = variant.get("programs")
    launched = {"programs": float(programs)} if type(programs) is int and 0 < programs <= MOST_PROGRAMS else {}
    features = {**base.features, **launched} if base.features else {}
    return dataclasses.replace(base, lds_bytes=lds_bytes, extra={**base.extra, **extra}, features=features)
