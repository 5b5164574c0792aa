"""Take the steps that Triton takes once in every process before its first kernel, or take over their results.

Triton hashes its whole installation for the keys of its cache, and compiles a helper that talks to the driver. Both
are the same in every process, so those that are started first take these steps, and later ones are told the hash and
are given the helper (`Shared`). Each compiles a kernel all the same, so that its compiler is loaded.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import sys
from pathlib import Path
from typing import TypedDict

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

# A message must fit into a socket's buffer, since its reader may be importing torch. Base64 takes four bytes for three.
MOST_BYTES = 140_000
HELPERS = "cuda_utils*.so"


class Shared(TypedDict):
    """Hold what one process has found out for the others.

    `key` is Triton's hash of its installation. `files` maps the names of the helper's files within Triton's cache to
    their bytes in base64.
    """

    key: str
    files: dict[str, str]


@triton.jit
def _increment(value):  # type: ignore[no-untyped-def]
    tl.store(value, tl.load(value) + 1)


def get_ready(shared: Shared | None) -> Shared | None:
    """Load Triton's compiler and its driver's helper, and return what spares other processes a part of it.

    With `shared` nothing is hashed, no helper is compiled, and None is returned.
    """
    if shared is not None:
        _take_over(shared)
    _compile_once()
    return None if shared is not None else {"key": cache.triton_key(), "files": _files()}


def _compile_once() -> None:
    """Compile the smallest kernel, for any NVIDIA device, and load what Triton loads such kernels with."""
    triton.compile(ASTSource(_increment, {"value": "*fp32"}, {}), target=GPUTarget("cuda", 80, 32))
    with contextlib.suppress(Exception):
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()


def _take_over(shared: Shared) -> None:
    @functools.lru_cache
    def triton_key() -> str:
        return shared["key"]

    # Modules that use the function have imported it by its name.
    for name, module in list(sys.modules.items()):
        if name.startswith("triton.") and hasattr(module, "triton_key"):
            vars(module)["triton_key"] = triton_key
    for name, content in shared["files"].items():
        path = _folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))


def _files() -> dict[str, str]:
    """Return the helper's files, or none if they are too large for a message."""
    paths = list(_folder().rglob(HELPERS))
    if sum(path.stat().st_size for path in paths) > MOST_BYTES:
        return {}
    return {str(path.relative_to(_folder())): base64.b64encode(path.read_bytes()).decode() for path in paths}


def _folder() -> Path:
    return Path(knobs.cache.dir)
