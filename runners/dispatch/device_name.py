"""Find the name of a worker's device: the processor's model, or the GPU's product name."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from runners.harness.devices.gpu_state import gpu_fixed
from runners.targets import Target

CPUINFO = Path("/proc/cpuinfo")


def device_name(target: Target) -> str:
    """Return the name of the device that would measure the target here, or an empty text if none is found."""
    if target.family == "cpu":
        return processor(CPUINFO)
    facts = gpu_fixed(target)
    return str(facts.get("gpu") or _market_name(facts.get("amd_smi_static")) or "")


def processor(cpuinfo: Path) -> str:
    """Return the model that the kernel reports, or the architecture if it reports none, as on many ARM machines."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(filter(None, models), "") or platform.processor() or platform.machine()


def _market_name(facts: Any) -> str | None:
    """Return the first `market_name` anywhere in amd-smi's answer, whose form differs between versions.

    Untested on AMD hardware.
    """
    if isinstance(facts, dict):
        own = facts.get("market_name")
        return own if isinstance(own, str) else _market_name(list(facts.values()))
    if isinstance(facts, list):
        return next(filter(None, map(_market_name, facts)), None)
    return None
