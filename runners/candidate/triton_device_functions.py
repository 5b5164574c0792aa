"""Compute the functions of a device's mathematical library in Triton's interpreter.

The interpreter (Triton 3.6) knows `tl` and not `tl.extra`: a kernel that calls `libdevice.tanh`, as every GELU in
Triton does, ends with an error. Here such calls are computed by torch on the values of the whole block, to the accuracy
of a CPU's library. Functions whose result depends on a rounding mode or on the device's state are not computed, and say
so.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

# Both the module that kernels import and those of the vendors, which Triton puts in its place when it compiles.
LIBRARIES = ("libdevice", "cuda.libdevice", "hip.libdevice")
VENDORS = ("cuda", "hip")
_FLOATS = (tl.float32, tl.float64)

Compute = Callable[..., torch.Tensor]


def _away(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest whole number, halves away from zero."""
    return torch.copysign(torch.floor(x.abs() + 0.5), x)


def _of_pi(function: Compute) -> Compute:
    return lambda x: function(x.double() * math.pi).to(x.dtype)


def _as(dtype: torch.dtype, rounded: Compute = lambda x: x) -> Compute:
    return lambda x: rounded(x).to(dtype)


def _fused(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x.double() * y.double() + z.double()).to(x.dtype)


# Functions that torch has under the same name.
_SAME = """
    abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot
    isinf isnan ldexp lgamma log log10 log1p log2 nextafter pow rsqrt signbit sin sinh sqrt tan tanh trunc
"""
_FAST = "cos exp log log2 log10 pow sin tan tanh"
_INTEGER_ROUNDINGS: dict[str, Compute] = {
    "rn": torch.round,
    "rz": torch.trunc,
    "rd": torch.floor,
    "ru": torch.ceil,
}
_COMPUTED: dict[str, Compute] = {
    **{name: getattr(torch, name) for name in _SAME.split()},
    **{f"fast_{name}f": getattr(torch, name) for name in _FAST.split()},
    **{f"float2int_{mode}": _as(torch.int32, rounded) for mode, rounded in _INTEGER_ROUNDINGS.items()},
    **{f"float2ll_{mode}": _as(torch.int64, rounded) for mode, rounded in _INTEGER_ROUNDINGS.items()},
    "add_rn": torch.add,
    "cbrt": lambda x: torch.copysign(x.abs() ** (1 / 3), x),
    "cospi": _of_pi(torch.cos),
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "div_rn": torch.div,
    "erfcx": torch.special.erfcx,
    "exp10": lambda x: 10**x,
    "fast_dividef": torch.div,
    "fast_exp10f": lambda x: 10**x,
    "fdim": lambda x, y: torch.clamp(x - y, min=0),
    "finitef": torch.isfinite,
    "float_as_int": lambda x: x.view(torch.int32),
    "fma": _fused,
    "fma_rn": _fused,
    "int2float_rn": _as(torch.float32),
    "int_as_float": lambda x: x.view(torch.float32),
    "isfinited": torch.isfinite,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "llrint": _as(torch.int64, torch.round),
    "llround": _as(torch.int64, _away),
    "mul_rn": torch.mul,
    "nearbyint": torch.round,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "rcbrt": lambda x: torch.copysign(x.abs() ** (-1 / 3), x),
    "rcp_rn": torch.reciprocal,
    "rhypot": lambda x, y: torch.reciprocal(torch.hypot(x, y)),
    "rint": torch.round,
    "round": _away,
    "rsqrt_rn": torch.rsqrt,
    "saturatef": lambda x: torch.nan_to_num(x, nan=0.0).clamp(0, 1),
    "scalbn": torch.ldexp,
    "sinpi": _of_pi(torch.sin),
    "sqrt_rn": torch.sqrt,
    "sub_rn": torch.sub,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
}
# A launch begins when the one before it has ended, here as without programmatic dependent launch.
_NO_EFFECT = dict.fromkeys(("gdc_wait", "gdc_launch_dependents"), lambda: None)
# They take whole numbers, by their first or only argument.
_OF_INTEGERS = frozenset({"int2float_rn", "int_as_float", "abs"})


def provide() -> None:
    """Put functions that the interpreter can run in the place of the device's."""
    for name in LIBRARIES:
        for library in _copies(name):
            for function in _functions_of(library):
                setattr(library, function, _computed(function))
    for name in VENDORS:
        for vendor in _copies(name):
            for function in _functions_of(vendor):
                setattr(vendor, function, _NO_EFFECT.get(function) or _absent(f"tl.extra.{name}.{function}"))


def _copies(name: str) -> list[ModuleType]:
    """Return the module that `import` finds, and the one that Triton has loaded by itself as `tl.extra`."""
    found = importlib.import_module(f"{tl.extra.__name__}.{name}")
    loaded: ModuleType = attrgetter(name)(tl.extra)
    return [found] if found is loaded else [found, loaded]


def _functions_of(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def _computed(name: str) -> Callable[..., Any]:
    """Return the library's function of that name for the interpreter."""
    compute = _COMPUTED.get(name)
    if compute is None:
        return _absent(f"libdevice.{name}")

    def function(*operands: Any) -> tl.tensor:
        values = [_tensor(operand) for operand in operands]
        scalar = values[0].dtype.scalar
        if name not in _OF_INTEGERS and scalar not in _FLOATS:
            raise ValueError(f"libdevice.{name} takes float32 or float64, and was given {scalar}")
        found = compute(*(torch.from_numpy(np.ascontiguousarray(value.handle.data)) for value in values))
        return _made(found.numpy(), is_block=any(value.type.is_block() for value in values))

    return function


def _absent(named: str) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{named} needs the device: Triton's interpreter does not know it")

    return function


def _tensor(operand: Any) -> tl.tensor:
    """Return an operand as a tensor of the interpreter; a plain number becomes float32, or int32 if it is whole."""
    value = operand.value if isinstance(operand, tl.constexpr) else operand
    if isinstance(value, tl.tensor):
        return value
    return _made(np.array([value], np.int32 if isinstance(value, int) else np.float32), is_block=False)


def _made(data: Any, *, is_block: bool) -> tl.tensor:
    dtype = tl.int1 if data.dtype == np.bool_ else getattr(tl, str(data.dtype))
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)) if is_block else dtype)
