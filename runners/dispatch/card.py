"""Describe a worker to the queue. Standard library only: a spool machine has nothing else."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence

from runners.backends.software import driver, software_of
from runners.harness.devices.device import AMD_HIDES, VISIBLE
from runners.harness.devices.gpu_state import gpu_fixed, product_name
from runners.job_source import RunnerCard
from runners.sandbox.probe import confinement_here
from runners.targets import TARGETS

# How a worker reaches its jobs, as its card says: with the database's password, with a token, or by files.
DATABASE, TOKEN, FILES = "database", "token", "files"
VISIBLE_DEVICES = (VISIBLE["hip"], AMD_HIDES, VISIBLE["cuda"])


def card_of(name: str, target: str, queues: Sequence[str], access: str = "") -> RunnerCard:
    """Return a card: name, target and queues as the worker serves them; device, driver and sandbox as the machine has
    them."""
    known = TARGETS.get(target)
    return RunnerCard(
        name=name,
        target=target,
        queues=tuple(queues),
        device=(product_name(gpu_fixed(known)) or known.title) if known else target,
        sandbox=confinement_here(),
        facts={
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "access": access,
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "driver": driver(),
            "software": software_of(target),
            "visible_devices": visible_devices(),
        },
    )


def visible_devices() -> str:
    """Return the devices that the environment leaves to this process, as `CUDA_VISIBLE_DEVICES=1`; empty for all."""
    return " ".join(f"{name}={os.environ[name]}" for name in VISIBLE_DEVICES if os.environ.get(name))
