"""Compute the behaviour descriptor that assigns a kernel to a cell of the MAP-Elites archive."""

from __future__ import annotations

import math
import re

from optimizer.search.base import KernelView
from runners.job import KernelResources

Cell = tuple[str, ...]

_TILE_NAME = re.compile(r"(tile|block|bm|bn|unroll|rows)", re.IGNORECASE)


def descriptor(kernel: KernelView) -> Cell:
    """Return coarse buckets of tile area, local memory, registers or occupancy, and bound class; `-` where unknown."""
    resources = _largest(kernel)
    return (
        _log_bucket(_tile_area(kernel)),
        _log_bucket(resources.lds_bytes if resources else None),
        _pressure(resources),
        str(kernel.result.profile.get("bound", "-")) if kernel.result else "-",
    )


def _tile_area(kernel: KernelView) -> float | None:
    """Return the product of the tile-like tunables with which the kernel was built, or None."""
    sizes = [
        float(value)
        for name, value in kernel.source.tunables.items()
        if _TILE_NAME.search(name) and isinstance(value, int | float) and value > 0
    ]
    return math.prod(sizes) if sizes else None


def _largest(kernel: KernelView) -> KernelResources | None:
    build = kernel.result.build if kernel.result else None
    # The largest kernel by code stands for a module that contains several.
    return max(build.kernels, key=lambda k: k.code_bytes or 0, default=None) if build else None


def _pressure(resources: KernelResources | None) -> str:
    if resources is None:
        return "-"
    if resources.occupancy is not None:
        return f"occ{resources.occupancy}"
    registers = resources.vgpr or resources.registers
    return _log_bucket(registers if registers else resources.code_bytes)


def _log_bucket(value: float | None) -> str:
    # Buckets of powers of two: finer ones would give nearly every kernel a cell of its own.
    return "-" if not value or value <= 0 else str(round(math.log2(value)))
