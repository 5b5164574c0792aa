"""Describe a device to the referee: its lock, what a process needs to reach it, and how much to read to flush its
caches."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.errors import Cancelled
from runners.harness.devices.own_node import own_node
from runners.sandbox import Devices
from runners.targets import Target

LOCK_MODE = 0o444
# flock(2) can't wait with a timeout, and a signal would disturb other threads.
LOCK_POLL_S = 0.01
# Host memory that the libraries of a GPU take besides a candidate's own.
GPU_HOST_BYTES = 12 << 30
# The libraries of a GPU need more threads and files than the sandbox grants by default.
GPU_LIMITS = {"processes": 4096, "open_files": 4096, "file_bytes": 1 << 30, "scratch_bytes": 1 << 30}
# Binding threads puts every process's first thread on the same core: nothing on a CPU, where sides take turns, but
# several start at once beside a GPU.
UNBOUND = {"OMP_PROC_BIND": "false"}
# The variable by which each runtime limits the devices that a process sees.
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}
# CUDA numbers GPUs by speed otherwise, and NVIDIA's library by their place on the bus.
CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
AMD_HIDES = "ROCR_VISIBLE_DEVICES"
NVIDIA_NODE, AMD_NODE = Path("/dev/nvidiactl"), Path("/dev/kfd")
SANDBOXES = {"cuda": Devices.NVIDIA, "hip": Devices.AMD}


@dataclass(frozen=True)
class Device:
    """Describe one measuring device.

    `kind` is `cpu` or the driver's (`cuda`, `hip`); `index` tells devices of one kind apart. `identity` does so for
    every process of the host, where it is known. `node` is the file below /dev of a device that its processes see
    alone. `environment` and `limits` are those of a process on it, `host_bytes` is the host memory of its libraries.
    """

    kind: str
    index: str = "0"
    identity: str = ""
    node: str = ""
    sandbox: Devices = Devices.NONE
    environment: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    host_bytes: int = 0
    flush_bytes: int = 0

    @contextmanager
    def exclusively(self, cancel: Callable[[], bool] | None = None) -> Iterator[float]:
        """Hold the device alone, for timing. Yields the seconds waited. Raises Cancelled."""
        with self._locked(fcntl.LOCK_EX, cancel) as waited_s:
            yield waited_s

    @contextmanager
    def shared(self, cancel: Callable[[], bool] | None = None) -> Iterator[float]:
        """Hold the device together with other builds and checks, which wait while a job is timed. Raises Cancelled."""
        with self._locked(fcntl.LOCK_SH, cancel) as waited_s:
            yield waited_s

    @contextmanager
    def _locked(self, kind: int, cancel: Callable[[], bool] | None) -> Iterator[float]:
        """Take the lock through a turnstile, so that a writer is not overtaken for ever by readers."""
        started = time.monotonic()
        # Two workers may both call their GPU 0, as jobs of Slurm on one host do, and still share the lock files.
        name = f"{self.kind}-{(self.identity or self.index).replace('/', '-')}"
        with _lock_file(name) as device:
            # flock(2) has no fairness. While one waits for the exclusive lock it holds the turnstile, which every
            # newcomer needs.
            with _lock_file(f"{name}-turn") as turn:
                _wait_for(turn, fcntl.LOCK_EX, cancel)
                _wait_for(device, kind, cancel)
            yield time.monotonic() - started


@contextmanager
def _lock_file(name: str) -> Iterator[int]:
    """Open a lock file that all users and state directories of this machine share, as they share its devices."""
    path = Path(os.environ.get("KERNELSCI_LOCKS") or tempfile.gettempdir()) / f"kernelsci-{name}.lock"
    # Opening without O_CREAT first: a sticky /tmp refuses O_CREAT on another user's file (fs.protected_regular).
    # Reading suffices for a lock, so nobody may write: a file that all users could fill would be a disk without limits.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, LOCK_MODE)
    # The process's umask may have taken bits off a new file, and earlier versions let everybody write.
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, LOCK_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, kind: int, cancel: Callable[[], bool] | None) -> None:
    while not _try_lock(descriptor, kind):
        if cancel is not None and cancel():
            raise Cancelled
        time.sleep(LOCK_POLL_S)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def device_for(vendor: str, flush_bytes: int) -> Device:
    """Return the device that this process measures on: the CPU, or the first GPU that is visible to it."""
    kind = {"nvidia": "cuda", "amd": "hip"}.get(vendor)
    return Device("cpu") if kind is None else _gpu(kind, flush_bytes)


def why_absent(target: Target) -> str | None:
    """Return why nothing can run for that target here, or None if its kind of device is present."""
    node = {"nvidia": NVIDIA_NODE, "amd": AMD_NODE}.get(target.vendor)
    if node is None or node.exists():
        return None
    return f"this machine has no {target.title}: {node} is not there; kernels for it can be built here, not run"


def device_of(arena: dict[str, Any] | None) -> Device:
    """Return the device on which an arena lies."""
    return Device("cpu") if arena is None else _gpu(arena["kind"], arena["flush_bytes"])


def _gpu(kind: str, flush_bytes: int) -> Device:
    index, environment = _first_visible(kind)
    own = own_node(kind, index)
    if own.visible:
        environment[VISIBLE[kind]] = own.visible
    return Device(
        kind,
        index,
        identity=own.identity,
        node=own.node,
        sandbox=SANDBOXES[kind],
        environment={**environment, **UNBOUND},
        limits=GPU_LIMITS,
        host_bytes=GPU_HOST_BYTES,
        flush_bytes=flush_bytes,
    )


def _first_visible(kind: str) -> tuple[str, dict[str, str]]:
    """Return the number or UUID, among all GPUs of the host, of the first one that this process may use, and the
    variables that show a process this one alone.
    """
    first = os.environ.get(VISIBLE[kind], "0").split(",")[0] or "0"
    if kind == "cuda":
        return first, {VISIBLE[kind]: first, **CUDA_ORDER}
    environment = {VISIBLE[kind]: first}
    # ROCm's runtime hides GPUs first, and HIP numbers those that are left.
    if shown := os.environ.get(AMD_HIDES, ""):
        environment[AMD_HIDES] = shown
        left = dict(enumerate(shown.split(",")))
        # A number beyond those that are left is no GPU of the host either.
        first = left.get(int(first), f"{shown}:{first}") if first.isdecimal() else first
    return first, environment
