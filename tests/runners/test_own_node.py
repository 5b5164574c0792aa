"""On a host with several GPUs, a sandbox shows the measured one alone, and its lock is the same under every name."""

from __future__ import annotations

import ctypes
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runners.errors import Cancelled
from runners.harness.devices import own_node as module
from runners.harness.devices.device import Device, device_for
from runners.harness.devices.nvml import NOT_SUPPORTED, Nvml
from runners.harness.devices.own_node import OwnNode, amd_node, nvidia_node, own_node
from runners.harness.oracle.confinement import oracle_policy
from runners.harness.processes.participant import candidate_policy
from runners.job import Limits
from runners.sandbox import Devices, SandboxPolicy, bubblewrap
from runners.sandbox.devices import device_binds

# The files of this host are not in the order of its bus.
UUIDS, MINORS = ("GPU-aaaa-1", "GPU-bbbb-2"), (1, 0)


class Library:
    """Stand in for NVIDIA's management library on a host with two GPUs, of which the second may be divided."""

    def __init__(self, *, parted: bool = False, mig_code: int = 0) -> None:
        self._parted, self.mig_code = parted, mig_code

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: Any, handle: Any) -> int:
        handle._obj.value = number.value + 1  # zero would be no handle
        return 0 if number.value < len(UUIDS) else 6

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        known = uuid.decode() in UUIDS
        handle._obj.value = UUIDS.index(uuid.decode()) + 1 if known else 0
        return 0 if known else 6

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, length: Any) -> int:
        assert length.value >= 80
        text.value = UUIDS[handle.value - 1].encode()
        return 0

    def nvmlDeviceGetMinorNumber(self, handle: Any, number: Any) -> int:
        number._obj.value = MINORS[handle.value - 1]
        return 0

    def nvmlDeviceGetMigMode(self, handle: Any, now: Any, after: Any) -> int:
        now._obj.value = int(self._parted and handle.value == 2)
        return self.mig_code


def installed(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> None:
    def load(name: str) -> Library:
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(module, "nvml", Nvml)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a host with two of NVIDIA's GPUs in the place of this one."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "dri/renderD129", "dri/renderD137", "kfd"):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(module, "nvidia_node", partial(nvidia_node, root=tmp_path))
    monkeypatch.setattr(module, "amd_node", partial(amd_node, root=tmp_path))
    monkeypatch.setattr(module, "_found", {})
    installed(monkeypatch, Library())
    return tmp_path


def on_gpu(monkeypatch: pytest.MonkeyPatch, visible: str) -> Device:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return device_for("nvidia", 1 << 20)


@pytest.mark.usefixtures("host")
def test_a_process_is_given_the_gpu_of_its_worker_and_told_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_gpu(monkeypatch, "1,0")
    assert device.index == "1"
    for policy in (oracle_policy(device), candidate_policy(device, Limits(), 1, ())):
        assert (policy.devices, policy.device_node) == (Devices.NVIDIA, "nvidia0")
        # Beside that file alone the GPU has another number than on the host.
        assert policy.env["CUDA_VISIBLE_DEVICES"] == UUIDS[1]
        assert policy.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_the_sandbox_opens_that_gpu_and_no_other(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "device_binds", partial(device_binds, root=host))
    monkeypatch.setattr(bubblewrap, "_tool", lambda name: name)
    policy = SandboxPolicy(devices=Devices.NVIDIA, device_node="nvidia1")
    command = bubblewrap.bubblewrap_argv(["true"], policy, None, filter_fd=3, status_fd=4)
    shown = {path for option, path in itertools.pairwise(command) if option == "--dev-bind"}
    assert shown == {f"{host}/dev/nvidia1", f"{host}/dev/nvidiactl"}


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("mig_code", [0, NOT_SUPPORTED])
@pytest.mark.parametrize("visible", ["1", UUIDS[1]])
def test_a_gpu_is_the_same_by_number_and_by_uuid(
    monkeypatch: pytest.MonkeyPatch, visible: str, mig_code: int
) -> None:
    installed(monkeypatch, Library(mig_code=mig_code))
    device = on_gpu(monkeypatch, visible)
    assert (device.identity, device.node) == (UUIDS[1], "nvidia0")


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("library", [None, Library(mig_code=15)], ids=["not installed", "fails once"])
def test_a_question_that_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> None:
    installed(monkeypatch, library)
    assert own_node("cuda", "1") == OwnNode()
    installed(monkeypatch, Library())
    assert own_node("cuda", "1") == OwnNode(UUIDS[1], "nvidia0", UUIDS[1])


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("visible", ["1", UUIDS[1], "7", "²", "GPU-b", "MIG-cccc", "MIG-GPU-b/1/0"])
def test_a_part_of_a_gpu_and_one_that_is_unknown_are_reached_as_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    installed(monkeypatch, Library(parted=True))
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    device = on_gpu(monkeypatch, visible)
    assert (device.node, device.identity, device.environment["CUDA_VISIBLE_DEVICES"]) == ("", "", visible)
    with device.exclusively() as waited_s:
        assert waited_s < 5


def test_a_gpu_whose_file_is_made_later_has_its_own_lock_before(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "dev/nvidia0").unlink()
    device = on_gpu(monkeypatch, "1")
    assert (device.node, device.identity, device.environment["CUDA_VISIBLE_DEVICES"]) == ("", UUIDS[1], "1")
    (host / "dev/nvidia0").touch()
    assert on_gpu(monkeypatch, "1").node == "nvidia0"


def test_gpus_that_are_both_number_0_to_their_workers_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))

    def never() -> bool:
        return True  # gives up instead of waiting

    here, there = Device("cuda", "0", "GPU-aaaa"), Device("cuda", "0", "GPU-bbbb")
    with here.exclusively(), there.exclusively(never):
        for again in (here, Device("cuda", "5", "GPU-aaaa")):
            with pytest.raises(Cancelled), again.exclusively(never):
                pytest.fail("two held one GPU")


def amd(host: Path) -> None:
    """Describe a host's own processor and three GPUs, of which one has no file here; 10 comes after 2."""
    for number, minor in (("0", 0), ("1", 128), ("2", 129), ("10", 137)):
        (folder := host / "sys/class/kfd/kfd/topology/nodes" / number).mkdir(parents=True)
        (folder / "properties").write_text(
            f"cpu_cores_count 0\ndrm_render_minor {minor}\nunique_id {int(number) + 0xA0}\n"
        )


@pytest.mark.parametrize(
    ("rocr", "hip", "name", "index"),
    [
        ("", "0", "renderD129", "0"),
        ("", "1", "renderD137", "1"),
        ("1", "", "renderD137", "1"),
        ("1,0", "1", "renderD129", "0"),
        ("GPU-00000000000000a2", "0", "renderD129", "GPU-00000000000000a2"),
        ("0", "1", "", "0:1"),
    ],
)
def test_amds_gpu_is_found_as_rocm_and_hip_number_it_and_named_as_the_worker_was_told(
    host: Path, monkeypatch: pytest.MonkeyPatch, rocr: str, hip: str, name: str, index: str
) -> None:
    amd(host)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", rocr)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", hip)
    device = device_for("amd", 1 << 20)
    assert (device.index, device.identity, device.node) == (index, name, "")
    assert device.environment["HIP_VISIBLE_DEVICES"] == (hip or "0")
    assert device.environment.get("ROCR_VISIBLE_DEVICES", "") == rocr


@pytest.mark.parametrize("properties", [None, "unique_id x\n", "drm_render_minor"])
def test_a_description_that_cannot_be_read_leaves_amds_gpu_as_it_is_named(
    host: Path, monkeypatch: pytest.MonkeyPatch, properties: str | None
) -> None:
    amd(host)
    odd = host / "sys/class/kfd/kfd/topology/nodes/2/properties"
    odd.unlink() if properties is None else odd.write_text(f"drm_render_minor 129\n{properties}")
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert (device_for("amd", 1 << 20).identity, device_for("amd", 1 << 20).index) == ("", "1")
