"""Name the modules that a fork server imports before candidates and oracles are forked from it."""

from __future__ import annotations

from pathlib import Path

from runners.harness.devices.device import Device

PROGRAM = Path(__file__).parents[2] / "candidate"
TORCH = ("torch",)
# Files of ours that prepare what no import does.
META_DEVICE, TRITON = str(PROGRAM / "warm_meta_device.py"), str(PROGRAM / "warm_triton.py")


def modules_for(device: Device, *, with_triton: bool = False) -> tuple[str, ...]:
    """Return the modules and files for processes that compute on a device, the same for candidates and oracles.

    On a CPU only torch is imported: few problems need more, and importing it would compete with what is measured.
    """
    if device.kind == "cpu":
        return TORCH
    return (*TORCH, META_DEVICE, *(("triton", TRITON) if with_triton else ()))
