"""Find the measured GPU under a name that is the same for every process of the host, and its file under /dev.

A candidate that could open a second GPU could compute there while its own is held, which no clock of the harness sees,
or disturb what is measured there. Container runtimes show NVIDIA's GPUs one by one in the same way.

AMD's GPUs are named here but not hidden: ROCm's runtime reads the kernel's whole list of GPUs and fails, in several
versions, if it cannot open one of them (ROCm issue 3144). Container runtimes use control groups there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.harness.devices.nvml import NvmlError, nvml

NVIDIA_GPUS = Path("proc/driver/nvidia/gpus")
# The kernel's list of AMD's processors, GPUs and others, in the order in which ROCm numbers them.
AMD_PROCESSORS = Path("sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class OwnNode:
    """Say where a GPU is found.

    `identity` names the GPU for every process of the host, however it numbers them. `node` is its file below /dev, and
    `visible` names the GPU to a process that can open no other. All are empty where they are unknown, `node` and
    `visible` also where GPUs are not hidden.
    """

    identity: str = ""
    node: str = ""
    visible: str = ""


def own_node(kind: str, index: str) -> OwnNode:
    """Return where the GPU of a driver (`cuda`, `hip`) with that number or UUID is, or an empty answer."""
    try:
        return _found(kind, index)
    except LookupError:
        return OwnNode()


@cache  # An exception is not kept: a driver may be loaded after the worker's start.
def _found(kind: str, index: str) -> OwnNode:
    return nvidia_node(index) if kind == "cuda" else amd_node(index)


def nvidia_node(index: str, root: Path = Path("/")) -> OwnNode:
    """Return the GPU by its number on the bus or its UUID, which may be cut short. Raises LookupError.

    A part of a GPU (MIG) has no file of its own.
    """
    try:
        device = nvml(index)
        uuid, minor, is_parted = device.uuid(), device.minor(), device.is_parted()
    except NvmlError:
        uuid, minor = _by_the_kernel(index, root)
        is_parted = False
    if is_parted:
        raise LookupError(index)
    node = f"nvidia{minor}"
    return OwnNode(uuid, node, uuid) if (root / "dev" / node).exists() else OwnNode(uuid)


def _by_the_kernel(index: str, root: Path) -> tuple[str, int]:
    """Return UUID and minor number as the kernel module tells them, where NVIDIA's library is not installed."""
    gpus = [_words(path / "information", ":") for path in sorted((root / NVIDIA_GPUS).glob("*"))]
    named = [(facts["GPU UUID"], int(facts["Device Minor"])) for facts in gpus if "Device Minor" in facts]
    if index.isdigit():
        return named[int(index)]
    meant = [gpu for gpu in named if gpu[0].startswith(index)]
    if len(meant) != 1:
        raise LookupError(index)
    return meant[0]


def amd_node(index: str, root: Path = Path("/")) -> OwnNode:
    """Return the GPU by ROCm's number or UUID. Raises LookupError. Untested on AMD hardware."""
    listed = sorted((root / AMD_PROCESSORS).glob("[0-9]*"), key=lambda path: int(path.name))
    described = [_words(path / "properties", " ") for path in listed]
    # A processor without a render node is not a GPU, and a container has no file for a GPU that is not its own.
    names = [f"renderD{facts.get('drm_render_minor', '0')}" for facts in described]
    gpus = [
        (name, facts) for name, facts in zip(names, described, strict=True) if (root / "dev/dri" / name).exists()
    ]
    for number, (name, facts) in enumerate(gpus):
        # ROCm's UUID is the serial number in hexadecimal digits.
        if index in (str(number), f"GPU-{int(facts.get('unique_id', '0')):016x}"):
            return OwnNode(name)
    raise LookupError(index)


def _words(file: Path, separator: str) -> dict[str, str]:
    """Return the names and values of a file with one of each a line, or nothing if it cannot be read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(separator) for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}
