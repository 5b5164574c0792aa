"""Warm up a process that computes on a GPU. The steps are the same for every kernel, so warm workers take them
ahead."""

from __future__ import annotations

import contextlib

import torch

from .driver import Driver


def prepare(kind: str) -> None:
    """Do what needs no device: Triton hashes its installation, builds its driver's helper and starts its compiler.

    Failures are ignored here, because the candidate will meet them again.
    """
    if kind == "cuda":
        with contextlib.suppress(Exception):
            from .warm_triton import compile_once

            compile_once()


def warm(kind: str) -> None:
    """Open the first visible device of that kind, and launch one of torch's kernels."""
    Driver(kind)
    # The first launch loads torch's kernels onto the device.
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()


STEPS = {"prepare": prepare, "warm": warm}
