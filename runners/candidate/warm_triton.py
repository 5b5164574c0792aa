"""Triton's first compilation takes a second, most of which is the same for every kernel after it."""

from __future__ import annotations

import contextlib

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _increment(value):  # type: ignore[no-untyped-def]
    tl.store(value, tl.load(value) + 1)


def compile_once() -> None:
    """Compile the smallest kernel, for any NVIDIA device, and load what Triton loads such kernels with."""
    triton.compile(ASTSource(_increment, {"value": "*fp32"}, {}), target=GPUTarget("cuda", 80, 32))
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
