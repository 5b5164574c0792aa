"""Warm up a process that computes on a GPU. The steps are the same for every kernel, so warm workers take them
ahead."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .driver import Driver


def prepare(question: dict[str, Any]) -> dict[str, Any]:
    """Do what needs no device: load Triton's compiler and its driver's helper (see `warm_triton`).

    Failures are ignored here, because the candidate will meet them again.
    """
    if question["device"] == "cuda":
        with contextlib.suppress(Exception):
            from .warm_triton import get_ready

            if found := get_ready(question["shared"]):
                return {"shared": found}
    return {}


def warm(question: dict[str, Any]) -> dict[str, Any]:
    """Open the first visible device of the kind asked for, and launch one of torch's kernels."""
    Driver(question["device"])
    # The first launch loads torch's kernels onto the device.
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    return {}


STEPS = {"prepare": prepare, "warm": warm}
