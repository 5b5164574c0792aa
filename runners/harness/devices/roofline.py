"""Measure the ceilings of a device once per machine, since every verdict shows its distance to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runners.errors import InfraFailure
from runners.harness.devices.cpu_levels import measured_levels
from runners.harness.devices.device import Device
from runners.state import state_dir, write_json
from runners.targets import Target, ceilings

PROGRAM = Path(__file__).parents[2] / "profiling" / "ceilings.py"
PROBE_S = 300.0
# The dtypes that torch multiplies on every supported device.
DTYPES = ("float32", "bfloat16", "float16", "float64")


def ensure_ceilings(wanted: Target, device: Device) -> None:
    """Probe a GPU's ceilings if that was not done yet; the caller holds the device alone.

    A probe that fails leaves the data sheet's figures in place.
    """
    if wanted.family == "cpu" or ceilings(wanted.key).measured_at:
        return
    try:
        write_json(state_dir("ceilings") / f"{wanted.key}.json", measured_ceilings(wanted, device))
    except (InfraFailure, subprocess.TimeoutExpired):
        return


def measured_ceilings(wanted: Target, device: Device) -> dict[str, Any]:
    """Measure in a process of its own; the caller holds the device alone. Raises InfraFailure, TimeoutExpired."""
    kind = "cpu" if wanted.family == "cpu" else "cuda"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, *(dtype for dtype in DTYPES if dtype in wanted.peak_flops)],
        env={**os.environ, **device.environment},
        capture_output=True,
        text=True,
        timeout=PROBE_S,
        check=False,
    )
    if done.returncode:
        raise InfraFailure(f"the probe failed: {done.stderr.strip()[-500:]}")
    levels = {"levels": measured_levels(wanted)} if kind == "cpu" else {}
    return {**json.loads(done.stdout), **levels, "measured_at": time.strftime("%Y-%m-%d")}
