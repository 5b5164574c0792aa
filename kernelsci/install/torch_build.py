"""Choose which build of torch to install: for the CPU, for CUDA or for ROCm.

PyPI has the CUDA build alone, with gigabytes of NVIDIA's libraries. PyTorch's own index has a folder for each build
(RELEASE.md of pytorch: 2.13 comes for CUDA 12.6, 13.0 and 13.2, and for ROCm 7.2).
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass

INDEX = "https://download.pytorch.org/whl/"
CPU, ROCM, OLDER_CUDA = "cpu", "rocm7.2", "cu126"
PYPI, NONE = "pypi", "none"
# What is left out with `none`, on a machine that serves pages and measures nothing.
OF_TORCH = ("torch==", "triton==")
# The oldest drivers that run programs of CUDA 13 and 12: NVIDIA's table "CUDA minor version compatibility".
DRIVER_OF_CUDA_13, DRIVER_OF_CUDA_12 = 580, 525
ANSWERS_WITHIN_S = 5.0
CPU_DISK_MB, GPU_DISK_MB = 3_000, 10_000


@dataclass(frozen=True)
class TorchBuild:
    """Name a build by its folder in PyTorch's index, `pypi`, `none` or an address; `reason` says why, for people."""

    name: str
    reason: str

    @property
    def index(self) -> str | None:
        """Return the package index to install torch from, None for PyPI."""
        if self.name in (PYPI, NONE):
            return None
        return self.name if "://" in self.name else INDEX + self.name

    @property
    def disk_mb(self) -> int:
        """Return what the installation takes with this build, in MB."""
        return CPU_DISK_MB if self.name in (CPU, NONE) else GPU_DISK_MB


def choose(setting: str, look: Callable[[], Sequence[str]]) -> TorchBuild:
    """Return the build for a machine with the targets that `look` finds, unless `setting` (TORCH_INDEX) decides."""
    if setting:
        return TorchBuild(setting, "TORCH_INDEX says so")
    targets = look()
    if any(target.startswith("gfx") for target in targets):
        return TorchBuild(ROCM, "an AMD GPU is here")
    if any(target.startswith("sm_") for target in targets):
        return _for_driver(nvidia_driver())
    return TorchBuild(CPU, "no GPU is here")


def _for_driver(major: int) -> TorchBuild:
    if major >= DRIVER_OF_CUDA_13:
        return TorchBuild(PYPI, "an NVIDIA GPU is here")
    if major >= DRIVER_OF_CUDA_12:
        return TorchBuild(OLDER_CUDA, f"the NVIDIA driver {major} knows no CUDA 13")
    return TorchBuild(CPU, f"the NVIDIA driver {major} is too old for this torch: update it to {DRIVER_OF_CUDA_13}")


def nvidia_driver() -> int:
    """Return the major version of NVIDIA's driver, 0 where it does not answer."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    major = said.partition(".")[0].strip()
    return int(major) if major.isdigit() else 0


def answers(index: str) -> bool:
    """Return whether an index can be reached. Behind a mirror of PyPI alone, PyTorch's often cannot."""
    address = index.rstrip("/") + "/torch/"
    try:
        with urllib.request.urlopen(address, timeout=ANSWERS_WITHIN_S) as answer:  # noqa: S310 - ours, see INDEX
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
