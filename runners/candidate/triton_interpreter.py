"""Let Triton's interpreter run what it cannot by itself: bfloat16, floats as arguments, the device's library, tuners.

The interpreter (triton/runtime/interpreter.py, Triton 3.6) holds bfloat16 as its bits in 16-bit integers and hands
these to NumPy, so that sums, products and `tl.dot` of them are those of the integers. Here such operands become
float32 first, and results are rounded back to bfloat16, to the nearest and ties to even, as a GPU does.

`triton.autotune` would time its configurations on a device. Here the first one that is left after pruning is taken:
configurations differ in speed, which an interpreter says nothing about.
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
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from . import pretended_device, triton_device_functions

# Quiet NaN; rounding the bits of a NaN could make an infinity of it.
NAN_BITS = 0x7FC0


def mend() -> None:
    """Replace what the interpreter lacks. Doing so again changes nothing."""
    if getattr(InterpreterBuilder, "is_mended", False):
        return
    for name in ("binary_op", "unary_op", "ternary_op"):
        setattr(InterpreterBuilder, name, _widened(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.create_fma = _fused(InterpreterBuilder.create_fma)
    InterpreterBuilder.create_dot = _dot(InterpreterBuilder.create_dot)
    InterpreterBuilder.is_mended = True
    interpreter._implicit_cvt = _with_floats(interpreter._implicit_cvt)
    # The tuner takes the configuration with the least time, of equal ones the first.
    Autotuner._bench = lambda *_, **__: 0.0
    triton_device_functions.provide()


def pretending() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what to put around functions of a candidate, so that they find the device that they are written for.

    Its facts are in the environment, if the kernel is written for another device than this CPU.
    """
    told = os.environ.get("PRETENDED_DEVICE")
    if told is None:
        pretended_device.name_cpu(len(os.sched_getaffinity(0)))
        return lambda function: function
    pretended_device.pretend(**json.loads(told))
    return pretended_device.on_the_cpu


def to_float32(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values whose bfloat16 bits are given, as float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of float32 values rounded to bfloat16, as 16-bit integers of the same shape."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), NAN_BITS, rounded).astype(np.uint16)


def _with_floats(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of a launch's arguments, by which a float becomes a float32 as in a compiled kernel.

    The interpreter leaves it a Python number, on which `eps.to(tl.float32)` fails.
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
