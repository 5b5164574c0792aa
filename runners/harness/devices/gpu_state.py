"""Record what a GPU is and does, from the vendor's own tool or library. Nothing is ever set."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

from runners.harness.devices.device import device_for
from runners.harness.devices.nvml import NvmlError, nvml
from runners.sandbox.meter import process_tree
from runners.targets import Target, product_target

ASK_WITHIN_S = 10.0
# Starting a vendor's program takes time, which must not delay an evaluation.
_watcher = ThreadPoolExecutor(2, thread_name_prefix="gpu-state")
NVIDIA_FIXED = {
    "name": "gpu",
    "driver_version": "driver",
    "power.limit": "power_limit_w",
    "clocks.max.sm": "max_clock_mhz",
}
NVIDIA_NOW = {
    "clocks.sm": "clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
    "utilization.gpu": "utilisation_percent",
    "memory.used": "memory_used_mib",
    "clocks_event_reasons.active": "throttle_reasons",
}


def gpu_fixed(target: Target) -> dict[str, Any]:
    """Return what stays the same between evaluations, or nothing without such a GPU or its tool."""
    device = device_for(target.vendor, target.flush_bytes)
    if device.kind == "cuda":
        return _nvidia(device.index, tuple(NVIDIA_FIXED.items()))
    return _amd(device.index, "static") if device.kind == "hip" else {}


def product_name(facts: Mapping[str, Any]) -> str:
    """Return the product that the driver names in what `gpu_fixed` found, or an empty text."""
    return str(facts.get("gpu") or _market_name(facts.get("amd_smi_static")) or "")


def is_other_product(target: Target, facts: Mapping[str, Any]) -> bool:
    """Return whether the GPU has a target of its own that is not this one, such as an H200 under `sm_90`.

    A product that no target describes counts as the target's, because nothing better is known of it.
    """
    own = product_target(product_name(facts))
    return own is not None and own.key != target.key


def watched(target: Target) -> Future[dict[str, Any]]:
    """Ask for `gpu_now` in the background."""
    return _watcher.submit(gpu_now, target)


def gpu_now(target: Target) -> dict[str, Any]:
    """Return the current clocks, power, temperature and load, and how many foreign processes compute on the GPU."""
    device = device_for(target.vendor, target.flush_bytes)
    if device.kind == "cuda":
        return _nvidia_now(device.index)
    return _amd(device.index, "metric") if device.kind == "hip" else {}


def _nvidia_now(index: str) -> dict[str, Any]:
    """Ask the library, or the program if the library can't be loaded."""
    try:
        library = nvml(index)
        now, computing = dict[str, Any](library.now()), library.processes()
    except NvmlError:
        others = answer_of(["nvidia-smi", "-i", index, "--query-compute-apps=pid", "--format=csv,noheader"])
        now = _nvidia.__wrapped__(index, tuple(NVIDIA_NOW.items()))
        computing = {int(pid) for pid in others.split() if pid.isdigit()}
    # Other users of the GPU disturb timings, so their number is recorded.
    return {**now, "other_processes": len(computing - set(process_tree(os.getpid())))} if now else {}


@cache
def _nvidia(index: str, fields: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    query = ",".join(name for name, _ in fields)
    answer = answer_of(["nvidia-smi", "-i", index, f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    values = [value.strip() for value in answer.splitlines()[0].split(",")] if answer else []
    return {mine: _value(value) for (_, mine), value in zip(fields, values, strict=False)}


def _amd(index: str, what: str) -> dict[str, Any]:
    """Return amd-smi's own words, whose form differs between versions; untested on AMD hardware."""
    answer = answer_of(["amd-smi", what, "--gpu", index, "--json"])
    try:
        return {f"amd_smi_{what}": json.loads(answer)} if answer else {}
    except ValueError:
        return {}


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


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def answer_of(command: list[str], within_s: float = ASK_WITHIN_S) -> str:
    """Return what a program prints, or an empty text if it is absent, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
