"""The device lock: one who times is alone, those who build share, nobody waits for ever."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from runners.errors import Cancelled
from runners.harness.devices.device import Device


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))


def test_timing_waits_for_those_who_build_and_says_how_long() -> None:
    device, entered = Device("cpu"), threading.Event()

    def build() -> None:
        with device.shared():
            entered.set()
            time.sleep(0.4)

    worker = threading.Thread(target=build)
    worker.start()
    entered.wait()
    with device.exclusively() as waited_s:
        assert waited_s > 0.2
    worker.join()


def test_builds_share_the_device() -> None:
    with Device("cpu").shared(), Device("cpu").shared() as waited_s:
        assert waited_s < 0.2


def test_devices_do_not_wait_for_each_other() -> None:
    with Device("cpu").exclusively(), Device("cuda", "1").exclusively() as waited_s:
        assert waited_s < 0.2


def test_whoever_waits_can_be_cancelled() -> None:
    with Device("cpu").exclusively(), pytest.raises(Cancelled), Device("cpu").shared(lambda: True):
        pytest.fail("two held the device")


def test_a_stream_of_builds_does_not_starve_timing() -> None:
    device, stop = Device("cpu"), threading.Event()

    def build() -> None:
        while not stop.is_set():
            with device.shared():
                time.sleep(0.15)

    workers = [threading.Thread(target=build) for _ in range(3)]
    for worker in workers:
        worker.start()
        time.sleep(0.05)
    try:
        with device.exclusively() as waited_s:
            assert waited_s < 3
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kernelsci-cpu-0.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), Device("cpu").shared():
        pytest.fail("followed")
    assert not (tmp_path / "elsewhere").exists()
