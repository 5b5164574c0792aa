"""Test that the process for the next imported problem is started ahead and disturbs nothing that is timed."""

from __future__ import annotations

from typing import Any

import pytest

from runners.harness.devices.device import Device
from runners.harness.oracle import pool as pool_module
from runners.harness.oracle.pool import TrustedPool


class RecordedZygote:
    """Stand for a process: note what is asked of it."""

    def __init__(self, policy: Any, *, for_modules: bool = False) -> None:
        self.for_modules, self.alive = for_modules, True
        self.calls: list[str] = []

    def pause(self) -> None:
        """Note it."""
        self.calls.append("pause")

    def resume(self) -> None:
        """Note it."""
        self.calls.append("resume")

    def close(self) -> None:
        """Note it."""
        self.calls.append("close")


@pytest.fixture
def gpu_pool(monkeypatch: pytest.MonkeyPatch) -> TrustedPool:
    monkeypatch.setattr(pool_module, "Zygote", RecordedZygote)
    monkeypatch.setattr(pool_module, "oracle_policy", lambda device: None)
    return TrustedPool(Device("cuda"))


def test_the_next_problems_process_is_started_while_one_is_evaluated(gpu_pool: TrustedPool) -> None:
    first, spare = gpu_pool._own_zygote(), gpu_pool._spare
    assert spare is not None and spare is not first and first.for_modules and spare.for_modules
    assert gpu_pool._own_zygote() is spare and gpu_pool._spare not in (first, spare)


def test_it_stands_still_during_timing_until_an_evaluation_takes_it(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    spare = gpu_pool._spare
    with gpu_pool.warm_workers.quiet():
        assert spare.calls == ["pause"]
    assert spare.calls == ["pause", "resume"]
    with gpu_pool.warm_workers.quiet():
        # Another evaluation takes it and must not wait; what is started for the one after it waits.
        assert gpu_pool._own_zygote() is spare and spare.calls[-1] == "resume"
        assert gpu_pool._spare.calls == ["pause"]
    assert gpu_pool._spare.calls == ["pause", "resume"]


def test_one_that_has_died_is_replaced_and_forgotten(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    dead = gpu_pool._spare
    dead.alive = False
    assert gpu_pool._own_zygote() is not dead
    told = len(dead.calls)
    with gpu_pool.warm_workers.quiet():
        pass
    assert len(dead.calls) == told


def test_closing_the_pool_ends_it(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    spare = gpu_pool._spare
    gpu_pool.close()
    assert spare.calls[-1] == "close" and gpu_pool._spare is None


def test_a_cpu_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "Zygote", RecordedZygote)
    monkeypatch.setattr(pool_module, "oracle_policy", lambda device: None)
    host = TrustedPool(Device("cpu"))
    assert host._own_zygote().for_modules and host._spare is None
