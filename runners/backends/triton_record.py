"""Compile a Triton candidate for a device that is absent: `triton_record.py SPEC OUT`, inside the sandbox.

The candidate's entry point runs on fake tensors (shapes and types, no memory), and launching a kernel compiles it for
the target instead. The record is written to OUT as JSON: for each compiled variant its name, signature and assembly.

The record misses kernels that are chosen by the content of a tensor, and code behind values that only a device has.
Pointers are assumed to be aligned to 16 bytes, as torch allocates. Needs the standard library, torch and triton only.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, MockTensor

# Each variant is a compilation, and an autotuner may list hundreds of configurations.
MOST_VARIANTS, MOST_CONFIGS = 64, 4
ASSEMBLIES = ("amdgcn", "ptx")


class AbsentDevice:
    """Stand in for a driver: it names the target and has nothing else."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda")

    def get_device_interface(self) -> Any:
        return torch.cuda


class Recorder:
    """Compile and record every launch instead of running it."""

    def __init__(self) -> None:
        self.variants: dict[str, dict[str, Any]] = {}
        self._compile = JITFunction.run

    def launch(self, function: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Compile a launch for the target; the same variant is recorded once."""
        mocked = [mock(arg) for arg in args]
        kernel = self._compile(function, *mocked, grid=grid, warmup=True, **{k: mock(v) for k, v in kwargs.items()})
        kernel = kernel.result() if hasattr(kernel, "result") else kernel
        if kernel is not None:
            self._record(kernel, kwargs, programs_of(function, args, grid, kwargs))
        return kernel

    def _record(self, kernel: Any, kwargs: dict[str, Any], programs: int) -> None:
        # The hash names a variant, so that repeated launches are described once, with the programs of the largest.
        if kernel.hash not in self.variants and len(self.variants) < MOST_VARIANTS:
            self.variants[kernel.hash] = {**described(kernel, kwargs), "programs": programs}
        elif variant := self.variants.get(kernel.hash):
            variant["programs"] = max(variant["programs"], programs)

    def tune(self, tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        """Compile the first few configurations, since only the device can say which is fastest."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        result = None
        for config in tuner.configs[:MOST_CONFIGS]:
            result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        return result


def programs_of(function: JITFunction, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any]) -> int:
    """Return how many programs a launch has, 0 where the candidate's grid cannot be computed without a device."""
    try:
        defaults = {one.name: one.default for one in function.params if one.has_default}
        told = {**defaults, **kwargs, **dict(zip(function.arg_names, args, strict=False))}
        return math.prod(int(extent) for extent in (grid(told) if callable(grid) else grid))
    except Exception:
        return 0


def mock(value: Any) -> Any:
    """Replace a tensor by its type; return any other value as it is."""
    return MockTensor(value.dtype, list(value.shape)) if isinstance(value, torch.Tensor) else value


def described(kernel: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the record of one compiled variant."""
    metadata = kernel.metadata
    plain = {name: value for name, value in kwargs.items() if isinstance(value, int | float | bool | str)}
    return {
        "name": metadata.name,
        "constants": plain,
        "num_warps": metadata.num_warps,
        "num_stages": getattr(metadata, "num_stages", None),
        "shared_bytes": metadata.shared,
        "assembly": {kind: kernel.asm[kind] for kind in ASSEMBLIES if kind in kernel.asm},
        **disassembled(kernel.asm.get("cubin")),
    }


def disassembled(cubin: bytes | None) -> dict[str, str]:
    """Return the registers and machine code of an NVIDIA binary, by the tool in Triton's own wheel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if cubin is None or not tool.exists():
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as handle:
        handle.write(cubin)
        handle.flush()
        return {
            name: subprocess.run([tool, option, handle.name], capture_output=True, text=True, check=False).stdout
            for name, option in (("usage", "-res-usage"), ("sass", "-sass"))
        }


def pretend(spec: dict[str, Any]) -> Recorder:
    """Put the absent device and the recorder in place."""
    backend, arch, wavefront = spec["target"]
    driver.set_active(AbsentDevice(GPUTarget(backend, arch, wavefront)))
    recorder = Recorder()
    JITFunction.run = lambda self, *args, **kwargs: recorder.launch(self, *args, **kwargs)
    Autotuner.run = lambda self, *args, **kwargs: recorder.tune(self, *args, **kwargs)
    # Fake tensors on "cuda" initialise the device, which is not there.
    setattr(fake_tensor, "init_gpu_context", lambda *_: None)  # noqa: B010 - not its type, on purpose
    facts = SimpleNamespace(**spec["device"])
    replacements = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_properties": lambda *_: facts,
        "get_device_capability": lambda *_: (facts.major, facts.minor),
        "get_device_name": lambda *_: facts.name,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: SimpleNamespace(cuda_stream=0),
    }
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    return recorder


def call(module: Any, arguments: list[dict[str, Any]]) -> None:
    """Call the entry point once on fake tensors."""
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        values = [
            torch.empty_strided(a["shape"], a["strides"], dtype=getattr(torch, a["dtype"]), device="cuda")
            if "shape" in a
            else a["scalar"]
            for a in arguments
        ]
        entry = getattr(module, "custom_kernel", None) or module.ModelNew()
        entry(*values)


def load(path: str) -> ModuleType:
    """Import the candidate's file as a module of its own."""
    found = importlib.util.spec_from_file_location("candidate_kernel", path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(found)
    sys.modules["candidate_kernel"] = module
    found.loader.exec_module(module)
    return module


def main(spec_path: str, out: str) -> None:
    """Record every call of the spec. An exception is recorded with what was compiled before it."""
    spec = json.loads(Path(spec_path).read_text())
    recorder, error = pretend(spec), ""
    try:
        module = load(spec["module"])
        for arguments in spec["calls"]:
            call(module, arguments)
    # A candidate may raise SystemExit or KeyboardInterrupt; the record must be written nevertheless.
    except BaseException as failure:
        error = "".join(traceback.format_exception(failure))[-8000:]
    answer = {"variants": list(recorder.variants.values()), "error": error, "triton": triton.__version__}
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:3])
    gc.freeze()  # an interpreter that ends collects garbage several times over, here in vain
