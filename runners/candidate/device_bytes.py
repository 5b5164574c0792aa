"""An arena in device memory as torch sees it; the same for candidates, baselines and the oracle."""

from __future__ import annotations

import torch


class Range:
    """A range of device memory as torch takes it without a copy."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class DeviceBytes:
    """An arena in device memory, from which tensors are cut."""

    device = "cuda"

    def __init__(self, base: int) -> None:
        self.base = base

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A range as a tensor of bytes with a storage of its own; no copy."""
        return torch.as_tensor(Range(self.base + offset, size_bytes), device=self.device)
