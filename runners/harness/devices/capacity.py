"""Say how many processes may stand ready on a device.

Each takes half a gigabyte of the device's memory by having opened it, whatever it computes. On a device of 80 GiB
sixteen of them spare every evaluation seconds; on one of 8 GiB they would leave no room for kernels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from runners.errors import InfraFailure
from runners.harness.devices.device import Device
from runners.harness.devices.nvml import NvmlError, nvml

# What a driver, torch and its libraries take of the device in one process.
CONTEXT_BYTES = 600 << 20
# The share of the device's memory that all processes together may take before any computes, unless the variable names
# another.
STANDING_SHARE, SHARE_VARIABLE = 0.15, "KERNELSCI_STANDING_SHARE"


@dataclass(frozen=True)
class Standing:
    """Limit the processes that stand ready on a device.

    `oracles` counts the one at work and those kept from earlier problems, `fresh` those that wait for new problems.
    `workers` wait for candidates, and `sides` are those of all sessions that are started together. A full evaluation of
    a Triton kernel takes seven workers, beside a parent ten; where it takes more, it starts the rest itself.
    """

    oracles: int = 4
    fresh: int = 2
    workers: int = 10
    sides: int = 1000

    @property
    def is_scarce(self) -> bool:
        """Return whether nothing may stand ready, so that an evaluation takes as little memory as it can."""
        return self.sides == 0


def standing(device: Device) -> Standing:
    """Return the limits for a device: the usual ones if it is large, or if nothing tells how large it is."""
    return limits_for(device_memory(device))


def limits_for(memory_bytes: int) -> Standing:
    """Return the limits for that much memory; 0 if it is not known.

    Raises InfraFailure if the variable that names their share is no share.
    """
    usual, share = Standing(), standing_share()
    if not memory_bytes:
        return usual
    most = int(share * memory_bytes / CONTEXT_BYTES)
    oracles = max(1, min(usual.oracles, most // 5))
    fresh = min(usual.fresh, most // 6)
    return Standing(oracles, fresh, max(0, min(usual.workers, most - oracles - fresh)), most)


def standing_share() -> float:
    """Return the share of the device's memory that processes may take before any computes. Raises InfraFailure."""
    named = os.environ.get(SHARE_VARIABLE) or STANDING_SHARE
    try:
        share = float(named)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InfraFailure(f"{SHARE_VARIABLE} is {named}, and must be a number from 0 to 1")
    return share


def device_memory(device: Device) -> int:
    """Return the memory of an NVIDIA device in bytes, 0 for any other and without the library."""
    if device.kind != "cuda":
        return 0
    try:
        return nvml(device.index).memory_bytes()[1]
    except NvmlError:
        return 0
