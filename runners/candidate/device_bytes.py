"""Present an arena in device memory to torch; the same for candidates, baselines and the oracle."""

from __future__ import annotations

import torch


class Range:
    """Describe a range of device memory, which torch takes without a copy."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


class DeviceBytes:
    """Cut tensors from an arena in device memory."""

    device = "cuda"

    def __init__(self, base: int) -> None:
        self.base = base

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        """Return a range as a tensor of bytes with a storage of its own, without a copy."""
        return torch.as_tensor(Range(self.base + offset, size_bytes), device=self.device)
