"""Compute the behaviour descriptor that assigns a kernel to a cell of the MAP-Elites archive.

A descriptor describes how a kernel works and not how fast it is. It uses what the compiler and the profiler report and,
since a CPU's compiler reports little, what the text shows: how wide its vectors are, and which techniques it uses.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from optimizer.search.base import KernelView
from optimizer.search.machinery.novelty import normalise
from runners.job import KernelResources, Language
from runners.tunables import TunablesError, parse

Cell = tuple[str, ...]

_TILE_NAME = re.compile(r"(tile|block|bm|bn|unroll|rows)", re.IGNORECASE)


# Width of vectors in bits by what names it in a text, widest first.
_WIDTHS = (
    ("512", re.compile(r"__m512|_mm512_|zmm|\bAVX512")),
    ("256", re.compile(r"__m256|_mm256_|ymm")),
    ("128", re.compile(r"__m128|_mm_|\b(?:float|int|uint)4\b|\bb128\b|dwordx4|LDG\.128")),
    ("generic", re.compile(r"vector_size\s*\(|ext_vector_type|omp simd|tl\.arange")),
)
_TECHNIQUES = {
    "matrix": re.compile(r"mfma|wgmma|wmma|mma\.sync|mma_sync|tl\.dot|_tile_dp|tdpb", re.IGNORECASE),
    "streamed": re.compile(r"_stream_|nontemporal|__stcs|__ldcs|\.cs\b|evict_first", re.IGNORECASE),
    "ahead": re.compile(r"prefetch|cp\.async|memcpy_async|cuda::pipeline|cp_async|num_stages|global_load_lds"),
    "packed": re.compile(r"\bpack|\balignas\s*\(|__shared__|aligned_alloc", re.IGNORECASE),
    "split": re.compile(r"atomicAdd|tl\.atomic|split_?k|stream_?k|reduction\s*\(", re.IGNORECASE),
}


def descriptor(kernel: KernelView) -> Cell:
    """Return coarse buckets of tile area, local memory, registers (or occupancy, or size) and bound class, `-` where
    unknown, and the vector width and techniques that the text shows.
    """
    resources = _largest(kernel)
    return (
        _log_bucket(_tile_area(kernel)),
        _log_bucket(resources.lds_bytes if resources else None),
        _pressure(resources) or _size(kernel),
        str(kernel.result.profile.get("bound", "-")) if kernel.result else "-",
        *_shown_by(kernel.source.language, kernel.source.text),
    )


@lru_cache(maxsize=4096)
def _shown_by(language: Language, text: str) -> tuple[str, str]:
    """Return vector width and techniques of a text, comments left out."""
    code = normalise(language, text).replace("\x00", " ")
    width = next((name for name, pattern in _WIDTHS if pattern.search(code)), "scalar")
    used = [name for name, pattern in _TECHNIQUES.items() if pattern.search(code)]
    return width, "+".join(used) or "-"


def _tile_area(kernel: KernelView) -> float | None:
    """Return the product of the tile-like tunables with which the kernel was built, or None.

    Kernels that agents write are built with the values that they declare.
    """
    try:
        values = {**parse(kernel.source.text).defaults(), **kernel.source.tunables}
    except TunablesError:
        values = dict(kernel.source.tunables)
    sizes = [
        float(value)
        for name, value in values.items()
        if _TILE_NAME.search(name) and isinstance(value, int | float) and value > 0
    ]
    return math.prod(sizes) if sizes else None


def _largest(kernel: KernelView) -> KernelResources | None:
    build = kernel.result.build if kernel.result else None
    # The largest kernel by code stands for a module that contains several.
    return max(build.kernels, key=lambda k: k.code_bytes or 0, default=None) if build else None


def _pressure(resources: KernelResources | None) -> str:
    """Return occupancy, or a bucket of registers or code size; empty where the compiler reports none of them."""
    if resources is None:
        return ""
    if resources.occupancy is not None:
        return f"occ{resources.occupancy}"
    reported = resources.vgpr or resources.registers or resources.code_bytes
    return _log_bucket(reported) if reported else ""


def _size(kernel: KernelView) -> str:
    """Return a bucket of the text's length without comments: kernels for many special cases are long."""
    return f"size{_log_bucket(len(normalise(kernel.source.language, kernel.source.text)))}"


def _log_bucket(value: float | None) -> str:
    # Buckets of powers of two: finer ones would give nearly every kernel a cell of its own.
    return "-" if not value or value <= 0 else str(round(math.log2(value)))
