"""Test that the processes for the next imported problems are started ahead and disturb nothing that is timed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.errors import InfraFailure
from runners.harness.devices.capacity import Standing, limits_for, standing
from runners.harness.devices.device import Device
from runners.harness.oracle import confinement
from runners.harness.oracle import pool as pool_module
from runners.harness.oracle.pool import TrustedPool
from runners.harness.oracle.protocol import SCARCE_VARIABLE
from runners.harness.processes.preloading import META_DEVICE
from runners.problems import load

FRESH, MOST_ORACLES = Standing().fresh, Standing().oracles
GIB = 1 << 30


class RecordedOracle:
    """Stand for an oracle: say when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def listen(self, cancel: None) -> None:
        """Have nothing to wait for."""

    def rest(self) -> None:
        """Hold nothing."""

    def close(self) -> None:
        """Say so."""
        self.closed.set()


class RecordedZygote:
    """Stand for a process that has imported torch."""

    def __init__(self, policy: Any, preloaded: tuple[str, ...]) -> None:
        self.for_modules = META_DEVICE in preloaded


class RecordedSpare:
    """Stand for an oracle that was started ahead: note what is asked of it."""

    def __init__(self, zygote: RecordedZygote, *_: Any, is_alone: bool = False) -> None:
        self.zygote, self.is_alone, self.alive = zygote, is_alone, True
        self.calls: list[str] = []

    def open(self, bundle: Any) -> RecordedSpare:
        """Take any problem."""
        return self

    def pause(self) -> None:
        """Note it."""
        self.calls.append("pause")

    def resume(self) -> None:
        """Note it."""
        self.calls.append("resume")

    def close(self) -> None:
        """Note it."""
        self.calls.append("close")


def recorded(oracle: object) -> RecordedSpare:
    assert isinstance(oracle, RecordedSpare)
    return oracle


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "Zygote", RecordedZygote)
    monkeypatch.setattr(pool_module, "oracle_policy", lambda device: None)
    for name in ("OracleClient", "GpuOracleClient"):
        monkeypatch.setattr(pool_module, name, RecordedSpare)


@pytest.fixture
def gpu_pool(no_processes: None) -> TrustedPool:
    return TrustedPool(Device("cuda"))


def taken_from(pool: TrustedPool) -> RecordedSpare:
    """Take an oracle, and wait until those that are started in the background are there."""
    taken = recorded(pool._own_oracle())
    assert pool._starting is not None
    pool._starting.result(10.0)
    return taken


def test_the_next_problems_oracles_are_started_while_one_is_evaluated(gpu_pool: TrustedPool) -> None:
    first, fresh = taken_from(gpu_pool), list(map(recorded, gpu_pool._fresh))
    assert len(fresh) == FRESH and first not in fresh
    assert all(one.zygote.for_modules and one.is_alone for one in (first, *fresh))
    assert taken_from(gpu_pool) is fresh[0]
    left = list(map(recorded, gpu_pool._fresh))
    assert left[:-1] == fresh[1:] and left[-1] not in fresh


def test_nobody_waits_for_the_next_ones_to_start(gpu_pool: TrustedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, may_start = gpu_pool._new_oracle(), threading.Event()
    monkeypatch.setattr(gpu_pool, "_taken_fresh", lambda: first)
    started = gpu_pool._new_oracle

    def slowly() -> Any:
        assert may_start.wait(10.0)
        return started()

    monkeypatch.setattr(gpu_pool, "_new_oracle", slowly)
    assert gpu_pool._own_oracle() is first and not gpu_pool._fresh
    may_start.set()
    gpu_pool.close()


def test_they_are_paused_during_timing_until_an_evaluation_takes_one(gpu_pool: TrustedPool) -> None:
    taken_from(gpu_pool)
    first, *others = map(recorded, gpu_pool._fresh)
    with gpu_pool.warm_workers.quiet():
        assert first.calls == ["pause"]
    assert first.calls == ["pause", "resume"]
    with gpu_pool.warm_workers.quiet():
        # Another evaluation takes it and must not wait; what is started for the one after it waits.
        assert taken_from(gpu_pool) is first and first.calls[-1] == "resume"
        assert [recorded(one).calls[-1] for one in gpu_pool._fresh] == ["pause"] * FRESH
    assert {recorded(one).calls[-1] for one in (*others, *gpu_pool._fresh)} == {"resume"}


def test_one_that_has_died_is_replaced_and_forgotten(gpu_pool: TrustedPool) -> None:
    taken_from(gpu_pool)
    dead, alive, *_ = map(recorded, gpu_pool._fresh)
    dead.alive = False
    assert taken_from(gpu_pool) is alive and len(gpu_pool._fresh) == FRESH
    told = len(dead.calls)
    with gpu_pool.warm_workers.quiet():
        pass
    assert len(dead.calls) == told and dead.calls[-1] == "close"


def test_closing_the_pool_ends_them(gpu_pool: TrustedPool) -> None:
    taken_from(gpu_pool)
    fresh = [recorded(one) for one in gpu_pool._fresh]
    gpu_pool.close()
    assert all(one.calls[-1] == "close" for one in fresh) and not gpu_pool._fresh


def test_a_cpu_keeps_none(no_processes: None) -> None:
    host = TrustedPool(Device("cpu"))
    assert not recorded(host._own_oracle()).zygote.for_modules
    assert host._starting is None and not host._fresh


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
        assert not gpu_pool._closing[0].done()
    assert gpu_pool.await_endings() < 10.0
    assert oracles[0].closed.is_set() and not any(oracle.closed.is_set() for oracle in oracles[1:])


def test_a_large_device_holds_as_many_ready_as_one_whose_memory_is_not_known() -> None:
    usual = Standing()
    for memory_bytes in (80 * GIB, 141 * GIB):
        found = limits_for(memory_bytes)
        assert (found.oracles, found.fresh, found.workers) == (usual.oracles, usual.fresh, usual.workers)
        assert found.sides >= 9  # three sessions of candidate, baseline and parent
    assert limits_for(0) == usual


@pytest.mark.parametrize("gib", [4, 6, 8, 12, 16, 24, 40, 48])
def test_what_stands_ready_takes_a_small_share_of_a_small_device(gib: int) -> None:
    found = limits_for(gib * GIB)
    ready = found.oracles + found.fresh + found.workers
    assert found.oracles >= 1 and ready * 600 * (1 << 20) <= max(600 * (1 << 20), 0.15 * gib * GIB)
    assert found.sides <= 0.15 * gib * 1024 / 600


def test_one_oracle_is_all_that_stands_ready_on_a_device_that_others_use_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELSCI_STANDING_SHARE", "0")
    assert limits_for(80 * GIB) == Standing(oracles=1, fresh=0, workers=0, sides=0)


@pytest.mark.parametrize(("sides", "is_told"), [(0, True), (4, False)])
def test_an_oracle_is_told_where_it_shall_take_little_memory(
    sides: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "standing", lambda device: Standing(1, 0, 0, sides))
    environment = confinement.oracle_policy(Device("cuda")).env
    assert (SCARCE_VARIABLE in environment, "PYTORCH_CUDA_ALLOC_CONF" in environment) == (is_told, is_told)
    assert SCARCE_VARIABLE not in confinement.oracle_policy(Device("cpu")).env


def test_the_share_says_nothing_about_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STANDING_SHARE", "0")
    assert standing(Device("cpu")) == Standing()


@pytest.mark.parametrize("named", ["much", "-0.1", "1.5", "nan"])
def test_a_share_that_is_none_is_refused_by_name(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STANDING_SHARE", named)
    with pytest.raises(
        InfraFailure, match=f"KERNELSCI_STANDING_SHARE is {named}, and must be a number from 0 to 1"
    ):
        limits_for(80 * GIB)


def test_the_oracle_of_an_earlier_problem_ends_before_that_of_a_new_one_is_one_too_many(
    no_processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "standing", lambda device: Standing(oracles=1, fresh=0))
    pool, earlier = TrustedPool(Device("test")), RecordedOracle()
    lent: Any = earlier
    pool.give_back(load("softmax_rows"), lent)
    assert not earlier.closed.is_set()
    pool.borrow(load("layernorm_residual"))
    pool.await_endings()
    assert earlier.closed.is_set()


def test_a_small_device_keeps_fewer_oracles(no_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "standing", lambda device: limits_for(8 * GIB))
    pool = TrustedPool(Device("cuda"))
    assert taken_from(pool) and not pool._fresh
