"""Calling a Python candidate, a module with `custom_kernel` or `ModelNew`, on buffers of the arena.

The timed region ends when the outputs are plain, materialised torch tensors: a subclass or a lazy tensor is refused
(exact type), and copying into the arena happens before the reply, so that nothing can be left for later.
"""

from __future__ import annotations

import importlib.util
import mmap
import sys
import time
from typing import Any, Protocol

import torch

clock = time.perf_counter_ns


class WrongOutput(Exception):
    """What the candidate returned has the wrong type, count, shape or dtype."""


def load(path: str) -> object:
    """Import the candidate's file as a module of its own."""
    spec = importlib.util.spec_from_file_location("candidate_kernel", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate_kernel"] = module
    spec.loader.exec_module(module)
    return module


class Arena(Protocol):
    """Memory on a device from which tensors are cut."""

    device: str

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A range as a tensor of bytes; no copy."""


class HostArena:
    """An arena in shared memory of the host."""

    device = "cpu"

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A range as a tensor of bytes; no copy."""
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=size_bytes, offset=offset)


def tensor_at(arena: Arena, spec: dict[str, Any], offset: int) -> torch.Tensor:
    """A view of the arena with that dtype, shape and strides (in elements); no copy."""
    dtype = getattr(torch, spec["dtype"])
    extent = 1 + sum((n - 1) * s for n, s in zip(spec["shape"], spec["strides"], strict=True))
    if 0 in spec["shape"]:
        return torch.empty(spec["shape"], dtype=dtype, device=arena.device)
    flat = arena.bytes_at(offset, extent * dtype.itemsize).view(dtype)
    return flat.as_strided(spec["shape"], spec["strides"])


class ModuleCallee:
    """`custom_kernel(*inputs)`, or `ModelNew().forward(*inputs)`, whichever the module defines."""

    def __init__(self, path: str, arena: Arena) -> None:
        module = load(path)
        self._function = getattr(module, "custom_kernel", None) or module.ModelNew()
        self._arena = arena
        self._inputs: list[dict[str, Any]] = []
        self._outputs: list[dict[str, Any]] = []

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the layout of the coming calls."""
        self._inputs, self._outputs = case["inputs"], case["outputs"]

    def prepare(self, call: dict[str, list[float]]) -> dict[str, Any]:
        """Views of the inputs, before the clock starts."""
        pairs = zip(self._inputs, call["inputs"], strict=True)
        values = [tensor_at(self._arena, spec, value) if "shape" in spec else value for spec, value in pairs]
        return {"values": values, "result": None}

    def run(self, prepared: dict[str, Any]) -> int:
        """One call; its duration in nanoseconds by this process's clock."""
        function, values = self._function, prepared["values"]
        start = clock()
        result = function(*values)
        elapsed = clock() - start
        prepared["result"] = result
        return elapsed

    def finish(self, prepared: dict[str, Any], call: dict[str, list[float]]) -> None:
        """Check the outputs strictly and copy them into the arena. Raises WrongOutput."""
        result = prepared["result"]
        tensors = [result] if type(result) is torch.Tensor else result
        if not isinstance(tensors, list | tuple) or len(tensors) != len(self._outputs):
            raise WrongOutput(f"expected {len(self._outputs)} tensor(s), got {describe(result)}")
        for tensor, spec, offset in zip(tensors, self._outputs, call["outputs"], strict=True):
            check_output(tensor, spec)
            tensor_at(self._arena, spec, offset).copy_(tensor)

    def report(self) -> dict[str, Any]:
        """Nothing beyond the times."""
        return {}


def check_output(tensor: object, spec: dict[str, Any]) -> None:
    """Exact type, dtype and shape, with real storage. Raises WrongOutput."""
    wanted = (spec["dtype"], tuple(spec["shape"]))
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        raise WrongOutput(f"expected a plain tensor, got {describe(tensor)}")
    found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    if found != wanted:
        raise WrongOutput(f"expected {wanted[0]} {list(wanted[1])}, got {found[0]} {list(found[1])}")


def describe(value: object) -> str:
    """A short name for what came back."""
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
