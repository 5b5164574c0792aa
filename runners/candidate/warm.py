"""Open a device ahead. The steps are the same for every kernel, so warm workers take them before they are needed."""

from __future__ import annotations

import torch

from .driver import Driver


def open_device(kind: str) -> None:
    """Open the first visible device of a kind, and launch one of torch's kernels."""
    Driver(kind)
    # The first launch loads torch's kernels onto the device.
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
