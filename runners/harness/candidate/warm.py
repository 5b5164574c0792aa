"""What a process that computes on a GPU does once, whatever the kernel: opening the device, loading torch's kernels and
whatever Triton prepares at its first launch. Done ahead in processes that wait for a candidate.
"""

from __future__ import annotations

import contextlib

import torch

from .driver import Driver


def warm(kind: str) -> None:
    """Open the first visible device of that kind, and launch one small kernel of torch's and one of Triton's."""
    Driver(kind)
    value = torch.zeros(1, device="cuda")
    value += 1
    with contextlib.suppress(Exception):  # no Triton, or no compiler for its launcher: the candidate will tell
        from .warm_triton import launch

        launch(value)
    torch.cuda.synchronize()
