"""Test that the processes for the next imported problems are started ahead and disturb nothing that is timed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.harness.devices.device import Device
from runners.harness.oracle import pool as pool_module
from runners.harness.oracle.pool import MOST_ORACLES, SPARES, TrustedPool
from runners.problems import load


class RecordedOracle:
    """Stand for an oracle: say when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def listen(self, cancel: None) -> None:
        """Have nothing to wait for."""

    def reset(self) -> None:
        """Hold nothing."""

    def close(self) -> None:
        """Say so."""
        self.closed.set()


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


def recorded(zygote: object) -> RecordedZygote:
    assert isinstance(zygote, RecordedZygote)
    return zygote


@pytest.fixture
def gpu_pool(monkeypatch: pytest.MonkeyPatch) -> TrustedPool:
    monkeypatch.setattr(pool_module, "Zygote", RecordedZygote)
    monkeypatch.setattr(pool_module, "oracle_policy", lambda device: None)
    return TrustedPool(Device("cuda"))


def test_the_next_problems_processes_are_started_while_one_is_evaluated(gpu_pool: TrustedPool) -> None:
    first, spares = gpu_pool._own_zygote(), list(gpu_pool._spares)
    assert len(spares) == SPARES and first not in spares
    assert all(recorded(one).for_modules for one in (first, *spares))
    assert gpu_pool._own_zygote() is spares[0]
    assert list(gpu_pool._spares)[:-1] == spares[1:] and gpu_pool._spares[-1] not in spares


def test_they_are_paused_during_timing_until_an_evaluation_takes_one(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    first, *others = map(recorded, gpu_pool._spares)
    with gpu_pool.warm_workers.quiet():
        assert first.calls == ["pause"]
    assert first.calls == ["pause", "resume"]
    with gpu_pool.warm_workers.quiet():
        # Another evaluation takes it and must not wait; what is started for the one after it waits.
        assert recorded(gpu_pool._own_zygote()) is first and first.calls[-1] == "resume"
        assert [recorded(one).calls[-1] for one in gpu_pool._spares] == ["pause"] * SPARES
    assert {recorded(one).calls[-1] for one in (*others, *gpu_pool._spares)} == {"resume"}


def test_one_that_has_died_is_replaced_and_forgotten(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    dead, alive, *_ = map(recorded, gpu_pool._spares)
    dead.alive = False
    assert recorded(gpu_pool._own_zygote()) is alive and len(gpu_pool._spares) == SPARES
    told = len(dead.calls)
    with gpu_pool.warm_workers.quiet():
        pass
    assert len(dead.calls) == told


def test_closing_the_pool_ends_them(gpu_pool: TrustedPool) -> None:
    gpu_pool._own_zygote()
    spares = [recorded(one) for one in gpu_pool._spares]
    gpu_pool.close()
    assert all(one.calls[-1] == "close" for one in spares) and not gpu_pool._spares


def test_a_cpu_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "Zygote", RecordedZygote)
    monkeypatch.setattr(pool_module, "oracle_policy", lambda device: None)
    host = TrustedPool(Device("cpu"))
    assert not recorded(host._own_zygote()).for_modules and not host._spares


def test_an_oracle_too_many_ends_in_the_background_and_while_nobody_times(
    gpu_pool: TrustedPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    bundle, oracles = load("softmax_rows"), [RecordedOracle() for _ in range(MOST_ORACLES + 1)]
    with gpu_pool._device.exclusively():
        for number, oracle in enumerate(oracles):
            lent: Any = oracle
            gpu_pool.give_back(replace(bundle, entry=f"{number}.py"), lent)
        assert not any(oracle.closed.wait(0.05) for oracle in oracles)
    assert oracles[0].closed.wait(10.0) and not any(oracle.closed.is_set() for oracle in oracles[1:])
