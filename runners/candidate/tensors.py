"""Cut tensors from the memory of an arena; the same for candidates, baselines and the oracle."""

from __future__ import annotations

import mmap
from typing import Any, Protocol

import torch


class Arena(Protocol):
    """Define memory on a device from which tensors are cut."""

    device: str

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """Return a range as a tensor of bytes, without a copy."""


class HostArena:
    """Cut tensors from an arena in shared memory of the host."""

    device = "cpu"

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """Return a range as a tensor of bytes, without a copy."""
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=size_bytes, offset=offset)


def tensor_at(arena: Arena, spec: dict[str, Any], offset: int) -> torch.Tensor:
    """Return a view of the arena with that dtype, shape and strides (in elements), without a copy."""
    dtype = getattr(torch, spec["dtype"])
    extent = 1 + sum((n - 1) * s for n, s in zip(spec["shape"], spec["strides"], strict=True))
    if 0 in spec["shape"]:
        return torch.empty(spec["shape"], dtype=dtype, device=arena.device)
    flat = arena.bytes_at(offset, extent * dtype.itemsize).view(dtype)
    return flat.as_strided(spec["shape"], spec["strides"])
