"""Find the file under /dev that belongs to one GPU alone, so that a sandbox shows that GPU and no other of the host.

A candidate that could open a second GPU could compute there while its own is held, which no clock of the harness sees,
or disturb what is measured there. Container runtimes separate GPUs in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.harness.devices.nvml import NvmlError, nvml

# The kernel's list of AMD's processors, GPUs and others, in the order in which ROCm numbers them.
AMD_PROCESSORS = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class OwnNode:
    """Say where a GPU is found.

    `node` is its file below /dev. `visible` names it to a process that can open only this node. `identity` is the same
    for every process of the host, however it numbers the GPUs. All are empty where they are unknown.
    """

    node: str = ""
    visible: str = ""
    identity: str = ""


@cache
def own_node(kind: str, index: str) -> OwnNode:
    """Return where the GPU of a driver (`cuda`, `hip`) with that index or UUID is, or an empty answer."""
    return _nvidia(index) if kind == "cuda" else _amd(index)


def _nvidia(index: str) -> OwnNode:
    # The index is that of NVIDIA's management library, which is the order on the bus. A part of a GPU (MIG) has no node
    # of its own, which fails here.
    try:
        device = nvml(index)
        uuid = device.uuid()
        return OwnNode(f"nvidia{device.minor()}", uuid, uuid)
    except NvmlError:
        return OwnNode()


def _amd(index: str, processors: Path = AMD_PROCESSORS) -> OwnNode:
    """Return the render node by the kernel's description of the machine; untested on AMD hardware."""
    described = [_facts(path) for path in sorted(processors.glob("[0-9]*"), key=lambda path: int(path.name))]
    # A processor without a render node is not a GPU.
    gpus = [facts for facts in described if facts.get("drm_render_minor", 0) > 0]
    for number, facts in enumerate(gpus):
        # ROCm's UUID is the serial number in hexadecimal digits.
        if index in (str(number), f"GPU-{facts.get('unique_id', 0):016x}"):
            name = f"renderD{facts['drm_render_minor']}"
            return OwnNode(f"dri/{name}", "0", name)
    return OwnNode()


def _facts(processor: Path) -> dict[str, int]:
    """Return a processor's properties: a name and a number a line."""
    try:
        words = (processor / "properties").read_text().split()
    except OSError:
        return {}
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}
