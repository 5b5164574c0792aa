"""On a host with several GPUs, a sandbox shows the measured one alone, and its lock is the same under every name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.harness.devices import own_node as module
from runners.harness.devices.device import Device, device_for
from runners.harness.devices.nvml import NvmlError
from runners.harness.devices.own_node import OwnNode, own_node
from runners.harness.oracle.confinement import oracle_policy
from runners.harness.processes.participant import candidate_policy
from runners.job import Limits
from runners.sandbox import Devices

UUIDS = ("GPU-aaaa", "GPU-bbbb")
# The files of this host are not in the order of its bus.
MINORS = (1, 0)


class FakeLibrary:
    """Stand in for NVIDIA's library on a host with two GPUs."""

    def __init__(self, index: str) -> None:
        known = dict(zip(UUIDS, range(2), strict=True))
        self._number = known[index] if index in known else int(index) if index.isdigit() else 2
        if self._number > 1:
            raise NvmlError("no such device")

    def uuid(self) -> str:
        return UUIDS[self._number]

    def minor(self) -> int:
        return MINORS[self._number]


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "nvml", FakeLibrary)
    own_node.cache_clear()
    yield
    own_node.cache_clear()


def on_gpu(monkeypatch: pytest.MonkeyPatch, visible: str) -> Device:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return device_for("nvidia", 1 << 20)


def test_a_process_is_shown_the_gpu_that_the_worker_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_gpu(monkeypatch, "1,0")
    for policy in (oracle_policy(device), candidate_policy(device, Limits(), 1, ())):
        assert (policy.devices, policy.device_node) == (Devices.NVIDIA, "nvidia0")
        # Beside that file alone the GPU has another number than on the host.
        assert policy.env["CUDA_VISIBLE_DEVICES"] == "GPU-bbbb"
    assert device.index == "1"


def test_a_gpu_has_one_lock_whether_it_is_named_by_number_or_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_gpu(monkeypatch, "0").identity == on_gpu(monkeypatch, "GPU-aaaa").identity == "GPU-aaaa"


def test_gpus_that_are_both_number_0_to_their_workers_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    here, there = Device("cuda", "0", "GPU-aaaa"), Device("cuda", "0", "GPU-bbbb")
    with here.exclusively(), there.exclusively() as waited_s:
        assert waited_s < 0.2


@pytest.mark.parametrize("visible", ["7", "MIG-cccc"])
def test_an_unknown_gpu_is_reached_as_before(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    device = on_gpu(monkeypatch, visible)
    assert (device.node, device.identity, device.environment["CUDA_VISIBLE_DEVICES"]) == ("", visible, visible)


def processors(folder: Path) -> Path:
    """Describe a host's own processor and three GPUs; 10 comes after 2."""
    for number, minor in (("0", 0), ("1", 128), ("2", 129), ("10", 137)):
        (folder / number).mkdir()
        facts = f"cpu_cores_count 0\ndrm_render_minor {minor}\nunique_id {int(number) + 0xA0}\n"
        (folder / number / "properties").write_text(facts)
    return folder


@pytest.mark.parametrize(
    ("index", "name"), [("0", "renderD128"), ("2", "renderD137"), ("GPU-00000000000000a2", "renderD129")]
)
def test_amds_render_node_is_found_by_number_and_by_uuid(tmp_path: Path, index: str, name: str) -> None:
    assert module._amd(index, processors(tmp_path)) == OwnNode(f"dri/{name}", "0", name)


@pytest.mark.parametrize("index", ["3", "GPU-1", ""])
def test_a_gpu_that_the_kernel_does_not_describe_has_no_node_of_its_own(tmp_path: Path, index: str) -> None:
    assert module._amd(index, processors(tmp_path)) == OwnNode()


@pytest.mark.parametrize(
    ("rocr", "hip", "index"), [("3,5", "1", "5"), ("3", "", "3"), ("GPU-ab", "0", "GPU-ab"), ("", "2", "2")]
)
def test_hip_numbers_the_gpus_that_rocm_leaves(
    monkeypatch: pytest.MonkeyPatch, rocr: str, hip: str, index: str
) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", rocr)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", hip)
    device = device_for("amd", 1 << 20)
    assert (device.index, device.environment["HIP_VISIBLE_DEVICES"]) == (index, index)
