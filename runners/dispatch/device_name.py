"""Find the name of a worker's device: the processor's model, or the GPU's product name."""

from __future__ import annotations

import platform
from pathlib import Path

from runners.harness.devices.gpu_state import gpu_fixed, product_name
from runners.targets import Target

CPUINFO = Path("/proc/cpuinfo")


def device_name(target: Target) -> str:
    """Return the name of the device that would measure the target here, or an empty text if none is found."""
    if target.family == "cpu":
        return processor(CPUINFO)
    return product_name(gpu_fixed(target))


def processor(cpuinfo: Path) -> str:
    """Return the model that the kernel reports, or the architecture if it reports none, as on many ARM machines."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(filter(None, models), "") or platform.processor() or platform.machine()
