"""Extend Triton's interpreter with bfloat16, float arguments, the device's library and autotuning.

The interpreter (triton/runtime/interpreter.py, Triton 3.7) holds bfloat16 as its bits in 16-bit integers and hands
these to NumPy, so that sums, products and `tl.dot` of them are those of the integers. Here such operands become
float32 first, and results are rounded back to bfloat16, to the nearest and ties to even, as a GPU does.

`triton.autotune` would time its configurations on a device. Here each set of keys takes another one of the
configurations that are left after pruning. It is run twice, because a tuner runs it before the launch that counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle
from triton.runtime.jit import JITFunction

from . import pretended_device, triton_device_functions
from .names import PRETENDED_DEVICE

# Quiet NaN; rounding the bits of a NaN could make an infinity of it.
NAN_BITS = 0x7FC0


def mend() -> None:
    """Add what the interpreter lacks, and name the device that it stands in for. A second call changes nothing."""
    if getattr(InterpreterBuilder, "is_mended", False):
        return
    for name in ("binary_op", "unary_op", "ternary_op"):
        setattr(InterpreterBuilder, name, _widened(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.create_fma = _fused(InterpreterBuilder.create_fma)
    InterpreterBuilder.create_dot = _dot(InterpreterBuilder.create_dot)
    InterpreterBuilder.get_bf16 = lambda _, value: TensorHandle(
        to_bfloat16(np.array([value], np.float32)), tl.bfloat16
    )
    InterpreterBuilder.is_mended = True
    interpreter._implicit_cvt = _with_floats(interpreter._implicit_cvt)
    Autotuner._bench = _bench
    JITFunction.run = _not_interpreted
    device = json.loads(os.environ.get(PRETENDED_DEVICE, "null"))
    if device is None:
        pretended_device.name_cpu(len(os.sched_getaffinity(0)))
    else:
        pretended_device.pretend(**device)
        GridExecutor._init_args_hst = _on_the_device(GridExecutor._init_args_hst)
    triton_device_functions.provide("cuda" if device is None else device["target"][0])


def around(function: Callable[..., Any], *, makes_on_device: bool = False) -> Callable[..., Any]:
    """Wrap a candidate's function so that it finds the device for which the kernel is written.

    With `makes_on_device`, tensors are made on that device by default.
    """
    if PRETENDED_DEVICE not in os.environ:
        return function
    return pretended_device.on_the_cpu(function, makes_on_device=makes_on_device)


def _bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> float:
    """Return 0 for the configuration that is to be taken, after running it once, and 1 for the others.

    `tuner.cache` has an entry for each set of keys so far.
    """
    left = tuner.prune_configs(meta)
    if config is not left[len(tuner.cache) % len(left)]:
        return 1.0
    named = {**meta, **config.all_kwargs()}
    told = {**tuner.nargs, **named}
    if config.pre_hook:
        config.pre_hook(told)
    tuner.pre_hook(told)
    tuner.fn.run(*args, **named)
    tuner.post_hook(told, exception=None)
    return 0.0


def _not_interpreted(kernel: Any, *_: Any, **__: Any) -> None:
    """Refuse to launch a kernel that is none of the interpreter's, as one in Gluon: it needs a device."""
    named = f"{kernel.fn.__name__}, which is not in Triton's own language,"
    raise NotImplementedError(f"{named} is not computed by Triton's interpreter on a CPU")


def _on_the_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what takes the arguments of a launch so that it refuses tensors on the host, as Triton does."""

    def taken(executor: Any, args: Any, kwargs: Any) -> Any:
        for place, value in enumerate([*args, *kwargs.values()]):
            if pretended_device.is_on_host(getattr(value, "base", value)):
                raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")
        return original(executor, args, kwargs)

    return taken


def to_float32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values whose bfloat16 bits are given, as float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of float32 values rounded to bfloat16, as 16-bit integers of the same shape."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), NAN_BITS, rounded).astype(np.uint16)


def _with_floats(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the conversion of launch arguments so that a float becomes a float32, as in a compiled kernel.

    The interpreter passes it on as a Python number, on which `eps.to(tl.float32)` fails.
    """

    def converted(argument: Any) -> Any:
        if isinstance(argument, float):
            return tl.tensor(TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return original(argument)

    return converted


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16 and value.data.dtype == np.uint16


def _wide(value: Any) -> Any:
    return TensorHandle(to_float32(value.data), tl.float32) if _is_bfloat16(value) else value


def _narrow(found: Any) -> Any:
    # Comparisons give truth values, which stay as they are.
    if found.data.dtype != np.float32:
        return found
    return TensorHandle(to_bfloat16(found.data), tl.bfloat16)


def _widened(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation whose last argument is NumPy's function, computed in float32 for bfloat16 operands."""

    def operation(self: Any, *arguments: Any) -> Any:
        *operands, function = arguments
        if not any(map(_is_bfloat16, operands)):
            return original(self, *arguments)
        return _narrow(original(self, *map(_wide, operands), function))

    return operation


def _fused(original: Callable[..., Any]) -> Callable[..., Any]:
    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if not _is_bfloat16(z):
            return original(self, x, y, z)
        return _narrow(original(self, _wide(x), _wide(y), _wide(z)))

    return fma


def _dot(original: Callable[..., Any]) -> Callable[..., Any]:
    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return original(self, _wide(a), _wide(b), d, *rest)

    return dot
