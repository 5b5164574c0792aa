"""Test the sandbox with an NVIDIA GPU in it; run on a GPU box with `pytest -m gpu`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from runners.harness.devices.device import device_for
from runners.sandbox import Devices, ResourceLimits, SandboxError, SandboxLevel, SandboxPolicy, python_paths, run
from runners.sandbox.probe import why_not

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no NVIDIA GPU"),
]

MULTIPLY = (
    "import torch; a = torch.ones(256, 256, device='cuda'); print('sum', float((a @ a).sum()));"
    "torch.cuda.synchronize()"
)
LOOK_AROUND = """
import os, socket
attempts = [lambda: open('/etc/shadow'), lambda: socket.socket(), lambda: open('/dev/sda')]
attempts.append(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect('/run/x'))
for attempt in attempts:
    try:
        attempt(); print('ESCAPED')
    except OSError as error:
        print('held', error)
"""


@pytest.fixture
def level() -> SandboxLevel:
    if reason := why_not(SandboxLevel.BUBBLEWRAP):
        pytest.skip(f"this machine lacks bubblewrap: {reason}")
    return SandboxLevel.BUBBLEWRAP


def policy(devices: Devices) -> SandboxPolicy:
    limits = ResourceLimits(wall_s=120, memory_bytes=32 << 30, processes=2048, open_files=4096)
    return SandboxPolicy(read_only=python_paths(), devices=devices, limits=limits)


def test_torch_computes_on_the_gpu_inside(level: SandboxLevel) -> None:
    completed = run([sys.executable, "-c", MULTIPLY], policy(Devices.NVIDIA), level=level)
    assert "sum 16777216.0" in completed.stdout, completed


def test_gpu_is_out_of_reach_unless_the_policy_gives_it(level: SandboxLevel) -> None:
    completed = run([sys.executable, "-c", MULTIPLY], policy(Devices.NONE), level=level)
    assert not completed.ok
    assert "sum" not in completed.stdout


def test_gpu_opens_no_other_door(level: SandboxLevel) -> None:
    completed = run([sys.executable, "-c", LOOK_AROUND], policy(Devices.NVIDIA), level=level)
    assert completed.stdout.count("held") == 4, completed


def test_landlock_says_that_it_cannot_hold_a_gpu_process() -> None:
    with pytest.raises(SandboxError, match="install bubblewrap"):
        run([sys.executable, "-c", MULTIPLY], policy(Devices.NVIDIA), level=SandboxLevel.LANDLOCK)


OPEN_ALL = """
import glob
for path in glob.glob('/dev/nvidia[0-9]*'):
    try:
        open(path, 'rb+', buffering=0); print('opened', path)
    except OSError as error:
        print('held', path, error)
"""


def test_no_other_gpu_of_the_host_can_be_opened(level: SandboxLevel) -> None:
    device = device_for("nvidia", 1 << 20)
    if not device.node:
        pytest.skip("this GPU has no file of its own")
    one = dataclasses.replace(policy(Devices.NVIDIA), device_node=device.node, env=device.environment)
    looked = run([sys.executable, "-c", OPEN_ALL], one, level=level)
    assert looked.stdout == f"opened /dev/{device.node}\n", looked
    assert "sum 16777216.0" in run([sys.executable, "-c", MULTIPLY], one, level=level).stdout
