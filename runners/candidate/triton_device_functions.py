"""Compute the functions of a device's mathematical library in Triton's interpreter.

The interpreter (Triton 3.7) knows `tl` and not `tl.extra`: a kernel that calls `libdevice.tanh`, as every GELU in
Triton does, ends with an error. Here Triton's own definitions check and broadcast the operands, as when they are
compiled, and torch computes the values of the whole block, to the accuracy of a CPU's library. The functions that are
not in `_COMPUTED` say that they are not computed here.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import torch
from triton.language import core, extra
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, interpreter_semantic

# The module that kernels import has names alone; Triton puts a vendor's functions in their place when it compiles.
IMPORTED, VENDORS = "libdevice", ("cuda", "hip")
# Modules of a vendor whose functions ask the device or its scheduler.
ASKING = ("cuda", "cuda.utils", "cuda.gdc", "hip", "hip.utils")
# A launch begins when the one before it has ended, here as without programmatic dependent launch.
_NO_EFFECT = ("gdc_wait", "gdc_launch_dependents")

Compute = Callable[..., torch.Tensor]


def _away(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest whole number, halves away from zero."""
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


def _cos_of_pi(x: torch.Tensor) -> torch.Tensor:
    return _sin_of_pi(x.double().abs().remainder(2) + 0.5).to(x.dtype)


def _sin_of_pi(x: torch.Tensor) -> torch.Tensor:
    """Return sin(πx), exact where x is a multiple of a half."""
    turn = x.double().remainder(2)
    quarters = torch.sin(torch.pi / 2 * (2 * turn).round()).round()
    return torch.where((2 * turn) == (2 * turn).round(), quarters, torch.sin(torch.pi * turn)).to(x.dtype)


def _cube_root(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x.double().abs() ** (1 / 3), x.double()).to(x.dtype)


def _fused(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise NotImplementedError("libdevice.fma of float64 is not computed by Triton's interpreter on a CPU")
    return (x.double() * y.double() + z.double()).float()


def _to_integer(dtype: torch.dtype, rounded: Compute) -> Compute:
    """Return a conversion that saturates, and makes 0 of NaN, as PTX's `cvt` does."""
    limits = torch.iinfo(dtype)

    def converted(x: torch.Tensor) -> torch.Tensor:
        found = rounded(x.double())
        whole = torch.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0).clamp(-(2.0**62), 2.0**62).to(torch.int64)
        whole = torch.where(
            found >= float(limits.max), limits.max, torch.where(found <= float(limits.min), limits.min, whole)
        )
        return whole.to(dtype)

    return converted


# Functions that torch has under the same name.
_SAME = """
    abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot
    isinf isnan ldexp lgamma log log10 log1p log2 nextafter pow rsqrt signbit sin sinh sqrt tan tanh trunc
"""
_FAST = "cos exp log log2 log10 pow sin tan tanh"
_ROUNDINGS: dict[str, Compute] = {"rn": torch.round, "rz": torch.trunc, "rd": torch.floor, "ru": torch.ceil}
_COMPUTED: dict[str, Compute] = {
    **{name: getattr(torch, name) for name in _SAME.split()},
    **{f"fast_{name}": getattr(torch, name) for name in _FAST.split()},
    **{f"float2int_{mode}": _to_integer(torch.int32, rounded) for mode, rounded in _ROUNDINGS.items()},
    **{f"float2ll_{mode}": _to_integer(torch.int64, rounded) for mode, rounded in _ROUNDINGS.items()},
    "add_rn": torch.add,
    "cbrt": _cube_root,
    "cospi": _cos_of_pi,
    **dict.fromkeys(("cyl_bessel_i0", "i0"), torch.special.i0),
    **dict.fromkeys(("cyl_bessel_i1", "i1"), torch.special.i1),
    "div_rn": torch.div,
    "erfcx": torch.special.erfcx,
    "exp10": lambda x: 10**x,
    **dict.fromkeys(("fabs", "iabs"), torch.abs),
    **dict.fromkeys(("fast_dividef", "fast_fdivide"), torch.div),
    "fast_exp10": lambda x: 10**x,
    "fdim": lambda x, y: torch.where(x <= y, torch.zeros_like(x), x - y),
    "finite": torch.isfinite,
    "float_as_int": lambda x: x.view(torch.int32),
    "fma": _fused,
    "fma_rn": _fused,
    "int2float_rn": torch.Tensor.float,
    "int_as_float": lambda x: x.view(torch.float32),
    "isfinite": torch.isfinite,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "llabs": torch.abs,
    "llrint": _to_integer(torch.int64, torch.round),
    "llround": _to_integer(torch.int64, _away),
    "mul_rn": torch.mul,
    "nearbyint": torch.round,
    "normcdf": lambda x: 0.5 * torch.erfc(-x / math.sqrt(2)),
    "normcdfinv": torch.special.ndtri,
    **dict.fromkeys(("powi", "pown"), torch.pow),
    "rcbrt": lambda x: torch.reciprocal(_cube_root(x)),
    "rcp_rn": torch.reciprocal,
    "rhypot": lambda x, y: torch.reciprocal(torch.hypot(x, y)),
    "rint": torch.round,
    "round": _away,
    "rsqrt_rn": torch.rsqrt,
    "saturate": lambda x: torch.nan_to_num(x, nan=0.0).clamp(0, 1),
    "scalbn": torch.ldexp,
    "sinpi": _sin_of_pi,
    "sqrt_rn": torch.sqrt,
    "sub_rn": torch.sub,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
}


def provide(vendor: str) -> None:
    """Let kernels in the interpreter call the library of a vendor, `cuda` or `hip`, and name what it cannot answer."""
    InterpreterBuilder.create_extern_elementwise = _computed
    for name in VENDORS:
        for library in _copies(f"{name}.{IMPORTED}"):
            _replace(library, lambda function, _: _with_semantic(function))
    known = vars(_copies(f"{vendor}.{IMPORTED}")[0])
    for library in _copies(IMPORTED):
        _replace(library, lambda _, named: known.get(named) or _absent(f"{IMPORTED}.{named}"))
    for name in ASKING:
        for module in _copies(name):
            _replace(module, lambda _, named, name=name: _asking(f"tl.extra.{name}.{named}", named))


def _replace(module: ModuleType, replacement: Callable[..., Any]) -> None:
    """Replace every function of a module by `replacement(function, name)`."""
    for name, value in list(vars(module).items()):
        if callable(value) and not name.startswith("_"):
            setattr(module, name, replacement(value, name))


def _copies(name: str) -> list[ModuleType]:
    """Return the module that `import` finds, and the one that Triton has loaded by itself as `tl.extra`."""
    found = importlib.import_module(f"{extra.__name__}.{name}")
    loaded: ModuleType = attrgetter(name)(extra)
    return [found] if found is loaded else [found, loaded]


def _with_semantic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the library for the interpreter, which leaves out what the compiler would pass."""

    def interpreted(*operands: Any, **named: Any) -> Any:
        return function(*operands, **named, _semantic=interpreter_semantic)

    return interpreted


def _asking(named: str, name: str) -> Callable[..., Any]:
    return (lambda: None) if name in _NO_EFFECT else _absent(named)


def _absent(named: str) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{named} is not computed by Triton's interpreter on a CPU")

    return function


def _computed(
    _builder: Any, _library: str, _path: str, symbol: str, operands: list[Any], result: Any, _is_pure: bool
) -> TensorHandle:
    """Return the values of one of the library's functions, by its symbol there, as the type that it returns."""
    name = _name_of(symbol)
    if name not in _COMPUTED:
        raise NotImplementedError(f"{symbol} is not computed by Triton's interpreter on a CPU")
    values = [torch.from_numpy(np.ascontiguousarray(operand.data)) for operand in operands]
    found = _COMPUTED[name](*values)
    scalar = result.scalar if isinstance(result, core.dtype) else result.element_ty
    return TensorHandle(found.numpy().astype(_numpy(scalar)), scalar)


def _numpy(scalar: core.dtype) -> Any:
    named = {"fp32": np.float32, "fp64": np.float64, "int1": np.bool_}
    return named.get(scalar.name) or np.dtype(scalar.name)


def _name_of(symbol: str) -> str:
    """Return the name in `_COMPUTED` of a symbol, such as tanh for `__nv_tanhf` and `__ocml_tanh_f32`."""
    name = re.sub(r"^__(?:nv|ocml|triton_hip)_|_f(?:32|64)$", "", symbol)
    # Rounded operations are named after the type of their operands too, as in `__nv_fadd_rn` and `__nv_fmaf_rn`.
    name = re.sub(r"^[fd](?=(?:add|sub|mul|div|rcp|r?sqrt)_rn$)", "", name).replace("fmaf_rn", "fma_rn")
    if name in _COMPUTED:
        return name
    # NVIDIA's names end in the type: f for float32, sometimes d for float64.
    return name[:-1] if name[-1:] in "fd" and name[:-1] in _COMPUTED else name
