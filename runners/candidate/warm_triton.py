"""Take the steps that Triton takes once in every process before its first kernel.

Triton hashes its whole installation for the keys of its cache, loads its compiler, and compiles and loads a helper that
talks to the driver. A fork server runs this file, so that the processes forked from it need not.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

CACHE_VARIABLE = "TRITON_CACHE_DIR"


@triton.jit
def _increment(value):  # type: ignore[no-untyped-def]
    tl.store(value, tl.load(value) + 1)


def get_ready() -> None:
    """Compile the smallest kernel, for any NVIDIA device, and load what Triton loads such kernels with.

    The hash and the helper stay in this process's memory, while what is written is removed. Failures are ignored; a
    forked process meets them again.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
        os.environ[CACHE_VARIABLE] = folder
        cache.triton_key()
        triton.compile(ASTSource(_increment, {"value": "*fp32"}, {}), target=GPUTarget("cuda", 80, 32))
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
    os.environ.pop(CACHE_VARIABLE, None)


get_ready()
