"""Describe where and with what an evaluation ran. The description is stored with every result."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from runners.backends.software import software_of
from runners.harness.devices.gpu_state import gpu_fixed, gpu_now
from runners.harness.processes.participant import thread_count
from runners.harness.processes.priority import may_raise
from runners.targets import TARGETS, Target, ceilings, vector_extensions

# 2.0: all sides are processes of one kind; device time is free of the host, with call time beside it.
# 2.3: calls of which the host needs long are made less often; every session judges a timed call.
# 2.4: on a CPU the time of calls that overwrite their outputs contains a copy; on a GPU a kernel that can be held shows
# its own device time though its reference cannot.
# 2.5: on a GPU the referee's clock of a held call no longer contains the process's waking, nor copies that keep outputs
# from being overwritten.
# 2.6: memory at its peak is no longer read against what stood ready when an evaluation began.
# 2.7: intervals over several cases count a session once; a small difference needs more sessions.
# 2.8: timed calls are judged by the reference's own result if they are close to it.
# 2.9: that holds only where a full comparison has shown that the reference's own result is right.
# 2.10: a parent is compared by device time even where the baseline cannot be held, and is not timed a second time if it
# has the baseline's source.
# 2.11: where float64 does not serve, later contents of a case are compared with the reference's own result at once;
# a difference with a wide interval needs more sessions, whatever its size.
# 2.12: where the reference computes in TF32, outputs that are about as close to its result in full precision are right
# too.
# 2.13: variants of the inputs that TF32 alone makes inaccurate are judged as well, by fifty times the reference's own
# error. Beside a reference that cannot be held, large calls are made in pairs, short ones are always warmed up, and a
# call in a loop takes at least a third of its time on the held device.
# 2.14: a win that the whole interval of the referee's own clock shows counts, even if load disturbed single requests.
# 2.15: a claim of more than three times what the referee's clock saw is unconfirmed, also below the baseline and
# against a parent.
# 2.16: processes have one work queue of an NVIDIA GPU if no side uses a second stream.
# 2.17: sides whose calls take much memory make as many untimed calls as a block has. Where no process may stand ready
# on a GPU, 256 MiB are much.
HARNESS_VERSION = "2.17"
# The rooms of `runners/` that build, confine, judge and time; commands and dispatch change no verdict.
_RUNNERS = Path(__file__).resolve().parents[2]
_JUDGES = ("harness", "candidate", "problems", "backends", "sandbox")


def describe(target: Target, gpu: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return versions, processor, threads, clock governor and the current load.

    `gpu` is the state of the GPU at a better time, if it was recorded.
    """
    return {
        **fixed(target),
        **_ceilings(target),
        "software": software_of(target.key),
        "harness_hash": harness_hash(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        **(gpu_now(target) if gpu is None else gpu),
    }


def fixed(target: Target) -> dict[str, Any]:
    """Return what stays the same between evaluations on one machine, the key of everything that is cached by
    environment."""
    return {
        "target": target.key,
        "device": target.title,
        "threads": thread_count(),
        "governor": _governor(),
        "raised_priority": may_raise(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "platform": sys.platform,
        **_processor(target),
        **gpu_fixed(target),
    }


@cache
def harness_hash() -> str:
    """Return the SHA-256 over the code that decides verdicts, as this machine has it on disk, in hexadecimal."""
    digest = hashlib.sha256()
    for folder in _JUDGES:
        for path in sorted((_RUNNERS / folder).rglob("*.py")):
            digest.update(str(path.relative_to(_RUNNERS)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _processor(target: Target) -> dict[str, Any]:
    """Return a CPU's vector extensions and data caches in bytes, which decide how a kernel is to be written."""
    return {"vector": vector_extensions(), "caches": dict(target.caches_bytes)} if target.family == "cpu" else {}


def _ceilings(target: Target) -> dict[str, Any]:
    """Return what a probe reached on this machine, so that readers of the result elsewhere see the same rooflines."""
    found = asdict(ceilings(target.key))
    return {"ceilings": found} if found["measured_at"] else {}


def _governor() -> str:
    try:
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        return "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def describe_safely(key: str, gpu: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return `describe`, or what is known without the target."""
    return describe(TARGETS[key], gpu) if key in TARGETS else {"target": key, "machine": platform.machine()}
