"""List the host's files that a process needs to reach an accelerator.

NVIDIA: the device nodes and /sys. The driver's libraries lie in /usr, which is readable anyway: those of a
distribution's packages, those that container toolkits mount, and /usr/local/cuda. AMD: /dev/kfd and the render nodes
with the groups that own them, /sys and /opt/rocm. Written from ROCm's container documentation; untested on AMD
hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runners.sandbox.base import Devices

# A node for each GPU, and those that all share.
NVIDIA_EACH = "nvidia[0-9]*"
NVIDIA_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
NVIDIA_PATHS = ("sys", "proc/driver/nvidia", "opt/cuda")
AMD_NODES = ("kfd", "dri/renderD[0-9]*")
AMD_PATHS = ("sys", "opt/rocm", "opt/amdgpu")


@dataclass(frozen=True)
class DeviceBinds:
    """List what a sandbox shows of a device.

    `nodes` are bound as devices, `read_only` as they are. `groups` are the supplementary group ids that a process
    needs to open the nodes, if they are not open to everybody.
    """

    nodes: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    groups: tuple[int, ...] = ()


def device_binds(devices: Devices | str, root: Path = Path("/"), node: str = "") -> DeviceBinds:
    """Return the files for `devices` under `root` that exist. An absent accelerator gives empty tuples.

    `node` is the file below /dev of the only GPU of NVIDIA's to show; without it all are shown.
    """
    if Devices(devices) is Devices.NVIDIA:
        return _present(root, (*NVIDIA_NODES, node or NVIDIA_EACH), NVIDIA_PATHS)
    if Devices(devices) is Devices.AMD:
        return _present(root, AMD_NODES, (*AMD_PATHS, *_versioned_rocm(root)))
    return DeviceBinds()


def _present(root: Path, nodes: tuple[str, ...], paths: tuple[str, ...]) -> DeviceBinds:
    found = sorted({node for pattern in nodes for node in (root / "dev").glob(pattern)})
    present = tuple(root / path for path in paths if (root / path).exists())
    return DeviceBinds(tuple(found), present, _groups(found))


def _versioned_rocm(root: Path) -> tuple[str, ...]:
    """Return the versioned installations: /opt/rocm is usually a link to /opt/rocm-6.4.1, which must be bound too."""
    return tuple(str(path.relative_to(root)) for path in sorted((root / "opt").glob("rocm-*")))


def _groups(nodes: list[Path]) -> tuple[int, ...]:
    """Return the groups that own nodes closed to others, but never root's group."""
    # Nodes that everybody may open need no group, and root's group would open far more than a device.
    owners = {node.stat().st_gid for node in nodes if not node.stat().st_mode & 0o006}
    return tuple(sorted(owners - {0}))
