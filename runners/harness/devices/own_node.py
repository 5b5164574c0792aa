"""Find the measured GPU under a name that is the same for every process of the host, and its file under /dev.

A candidate that could open a second GPU could compute there while its own is held, which no clock of the harness sees,
or disturb what is measured there. Container runtimes show NVIDIA's GPUs one by one in the same way.

AMD's GPUs are named here but not hidden: ROCm's runtime reads the kernel's whole list of GPUs and fails, in several
versions, if it cannot open one of them (ROCm issue 3144). Container runtimes use control groups there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runners.harness.devices.nvml import nvml

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


UNKNOWN = OwnNode()
_found: dict[tuple[str, str], OwnNode] = {}


def own_node(kind: str, index: str) -> OwnNode:
    """Return where the GPU of a driver (`cuda`, `hip`) with that number or UUID is, or an empty answer."""
    if (known := _found.get((kind, index))) is not None:
        return known
    try:
        found = nvidia_node(index) if kind == "cuda" else amd_node(index)
    # The driver is not loaded, the name is unknown, or a file is malformed: the worker's own name for the GPU is used.
    except (OSError, LookupError, ValueError):
        return UNKNOWN
    # A driver may be loaded, and its files made, after a worker's start, so that only a complete answer is kept.
    if found.node or kind == "hip":
        _found[kind, index] = found
    return found


def nvidia_node(index: str, root: Path = Path("/")) -> OwnNode:
    """Return the GPU by its number on the bus or its whole UUID, as NVIDIA's management library knows it.

    A GPU with MIG enabled gives an empty answer, because its instances have no file of their own. Raises NvmlError.
    """
    device = nvml(index)
    if device.has_mig_enabled():
        return UNKNOWN
    uuid, node = device.uuid(), f"nvidia{device.minor()}"
    return OwnNode(uuid, node, uuid) if (root / "dev" / node).exists() else OwnNode(uuid)


def amd_node(index: str, root: Path = Path("/")) -> OwnNode:
    """Return the GPU by ROCm's number or UUID. Raises LookupError, OSError, ValueError. Untested on AMD hardware."""
    gpus = []
    for processor in sorted((root / AMD_PROCESSORS).iterdir(), key=lambda path: int(path.name)):
        lines = (processor / "properties").read_text().splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        name = f"renderD{facts.get('drm_render_minor', '0')}"
        # A processor without a render node is not a GPU, and a container has no file for a GPU that is not its own.
        if (root / "dev/dri" / name).exists():
            # ROCm's UUID is the serial number in hexadecimal digits.
            gpus.append((name, f"GPU-{int(facts.get('unique_id', '0')):016x}"))
    named = {str(number): name for number, (name, _) in enumerate(gpus)} | {uuid: name for name, uuid in gpus}
    return OwnNode(named[index])
