"""Call a Python candidate, a module with `custom_kernel` or `ModelNew`, on buffers of the arena.

The timed region ends when the outputs are plain, materialised torch tensors: a subclass or a lazy tensor is refused
(exact type), and copying into the arena happens before the reply, so that nothing can be left for later.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

import torch

from . import setups
from .entry import entry_of
from .structure import arguments_of, tensors_in
from .tensors import Arena, tensor_at

clock = time.perf_counter_ns
# NaN in every floating dtype when it is repeated.
POISON = 0xFF
# How much larger a block is than the output that takes its place: the allocator needs some for alignment, and small
# allocations that come between may take some.
ROOM_BEYOND_BYTES = 64 << 10
# Models of other cases are kept while the weights of all take no more than this: building one can take a second, and a
# process serves every case several times.
KEPT_STATE_BYTES = 256 << 20


class WrongOutput(Exception):
    """Report that the candidate returned the wrong type, count, shape or dtype."""


def load(path: str) -> ModuleType:
    """Import the candidate's file as a module of its own."""
    loader = SourceFileLoader("candidate_kernel", path)
    module = importlib.util.module_from_spec(ModuleSpec(loader.name, loader, origin=path))
    module.__file__ = path
    # Dataclasses and pickle look a class's module up by its name.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


class ModuleCallee:
    """Call `custom_kernel(*inputs)`, or `ModelNew(*init)(*inputs)`, whichever the module defines.

    `folder` holds the cases' setups, "" if there are none.
    """

    def __init__(self, path: str, arena: Arena, folder: str) -> None:
        torch.set_grad_enabled(False)  # as where the reference runs
        setups.make_importable(folder)
        self._around: Callable[..., Callable[..., Any]] = lambda function, **_: function
        if os.environ.get("TRITON_INTERPRET") == "1":
            from . import triton_interpreter

            triton_interpreter.mend()
            self._around = triton_interpreter.around
        self._namespace = vars(self._around(load)(path))
        self._arena, self._folder = arena, folder
        self._case: dict[str, Any] = {}
        self._function: Any = None
        self._models: dict[str | None, Any] = {}
        self._state_bytes = 0
        self._room: deque[list[torch.Tensor]] = deque()
        self.overwrites = False

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the layout of the coming calls, with the callable of their setup."""
        if self._function is None or case.get("setup") != self._case.get("setup"):
            self._function = None  # a model's memory, before the next takes its own
            self._function = self._model(case.get("setup"))
        self._case = case

    def _model(self, name: str | None) -> Any:
        """Return the callable of a setup: the one that was made before, unless large ones came between."""
        if name not in self._models:
            setup = setups.read(self._folder, name)
            size_bytes = sum(value.nbytes for value in setup.state.values())
            if self._state_bytes + size_bytes > KEPT_STATE_BYTES:
                self._models.clear()
                self._state_bytes = 0
            made = self._around(entry_of, makes_on_device=True)(self._namespace, setup, self._arena.device)
            self._models[name] = self._around(made)
            self._state_bytes += size_bytes
        return self._models[name]

    def make_room(self, calls: int) -> None:
        """Allocate memory for the outputs of so many calls and write to all of it.

        The outputs of a request's calls live until it is answered, so each takes other memory. Its page faults, a
        thousand for 4 MiB, and its cache misses would be charged to the candidate, while a C function writes to an
        arena that the referee has just laid out. Each call gives its block back to the allocator just before its
        clock starts, and its outputs come from there. On a GPU torch keeps its memory anyway.
        """
        self._room.clear()
        if self._arena.device == "cpu":
            sizes = [_dense_bytes(spec) for spec in self._case.get("outputs", [])]
            self._room.extend([_written(size) for size in sizes] for _ in range(calls))

    def prepare(self, call: dict[str, list[Any]]) -> dict[str, Any]:
        """Return the positional arguments, with views of the inputs, before the clock starts."""
        pairs = zip(self._case["inputs"], call["inputs"], strict=True)
        values = {s["name"]: tensor_at(self._arena, s, v) if "shape" in s else v for s, v in pairs}
        return {"values": arguments_of(self._case["structure"], values), "result": None}

    def run(self, prepared: dict[str, Any]) -> int:
        """Make one call, and return its duration in ns by this process's clock."""
        function, values = self._function, prepared["values"]
        if self._room:
            self._room.popleft()
        start = clock()
        result = function(*values)
        if self.overwrites:
            # Whoever makes several calls and wants all outputs has to copy them as well. Outside the clock, the copies
            # would be time that only the referee sees, like work that a candidate hides.
            result = saved(result)
        elapsed = clock() - start
        prepared["result"] = result
        return elapsed

    def finds_overwritten(self, made: list[dict[str, Any]]) -> bool:
        """Return whether calls of a request returned the same memory, unless that was known; remember it."""
        known = self.overwrites
        places = [{t.data_ptr() for t in plain_tensors(each["result"]) if t.numel()} for each in made]
        self.overwrites = known or sum(map(len, places)) > len(set[int]().union(*places))
        return self.overwrites and not known

    def finish(self, prepared: dict[str, Any], call: dict[str, list[Any]]) -> None:
        """Check the outputs strictly and copy them into the arena. Raises WrongOutput."""
        tensors, specs = tensors_in(prepared["result"]), self._case["outputs"]
        if len(tensors) != len(specs):
            raise WrongOutput(f"expected {len(specs)} tensor(s), got {describe(prepared['result'])}")
        for tensor, spec, offset in zip(tensors, specs, call["outputs"], strict=True):
            check_output(tensor, spec)
            tensor_at(self._arena, spec, offset).copy_(tensor)


def plain_tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result that hold memory of their own, which a subclass may not."""
    return [each for each in tensors_in(result) if type(each) is torch.Tensor and each.layout is torch.strided]


def saved(result: Any) -> Any:
    """Return copies of a result's tensors, or the result itself if it holds anything else."""
    tensors = plain_tensors(result)
    return [tensor.clone() for tensor in tensors] if len(tensors) == len(tensors_in(result)) else result


def _dense_bytes(spec: dict[str, Any]) -> int:
    """Return the bytes of a tensor that is packed row by row, as outputs are."""
    dtype: torch.dtype = getattr(torch, spec["dtype"])
    return int(math.prod(spec["shape"])) * int(dtype.itemsize)


def _written(size_bytes: int) -> torch.Tensor:
    """Allocate a block through torch and fill it with the poison of an arena's outputs.

    The results of earlier calls are gone, and what a candidate leaves out is NaN.
    """
    block = torch.empty(size_bytes + ROOM_BEYOND_BYTES, dtype=torch.uint8)
    ctypes.memset(block.data_ptr(), POISON, block.nbytes)
    return block


def check_output(tensor: object, spec: dict[str, Any]) -> None:
    """Check the exact type, dtype and shape, with real storage. Raises WrongOutput."""
    wanted = (spec["dtype"], tuple(spec["shape"]))
    # A subclass could compute when it is copied, after the clock has stopped.
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        raise WrongOutput(f"expected a plain tensor, got {describe(tensor)}")
    found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    if found != wanted:
        raise WrongOutput(f"expected {wanted[0]} {list(wanted[1])}, got {found[0]} {list(found[1])}")


def describe(value: object) -> str:
    """Return a short name for what was returned."""
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
