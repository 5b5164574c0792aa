"""What kind of kernel is it? The behaviour descriptor that MAP-Elites keeps one elite for."""

from __future__ import annotations

import math
import re

from optimizer.search.base import KernelView
from runners.job import KernelResources

Cell = tuple[str, ...]

_TILE_NAME = re.compile(r"(tile|block|bm|bn|unroll|rows)", re.IGNORECASE)


def descriptor(kernel: KernelView) -> Cell:
    """(tile area, local memory, registers or occupancy, bound class), each a coarse bucket; `-` where unknown."""
    resources = _largest(kernel)
    return (
        _log_bucket(_tile_area(kernel)),
        _log_bucket(resources.lds_bytes if resources else None),
        _pressure(resources),
        str(kernel.result.profile.get("bound", "-")) if kernel.result else "-",
    )


def _tile_area(kernel: KernelView) -> float | None:
    """Product of the tile-like tunables the kernel was built with."""
    sizes = [
        float(value)
        for name, value in kernel.source.tunables.items()
        if _TILE_NAME.search(name) and isinstance(value, int | float) and value > 0
    ]
    return math.prod(sizes) if sizes else None


def _largest(kernel: KernelView) -> KernelResources | None:
    build = kernel.result.build if kernel.result else None
    return max(build.kernels, key=lambda k: k.code_bytes or 0, default=None) if build else None


def _pressure(resources: KernelResources | None) -> str:
    if resources is None:
        return "-"
    if resources.occupancy is not None:
        return f"occ{resources.occupancy}"
    registers = resources.vgpr or resources.registers
    return _log_bucket(registers if registers else resources.code_bytes)


def _log_bucket(value: float | None) -> str:
    return "-" if not value or value <= 0 else str(round(math.log2(value)))
