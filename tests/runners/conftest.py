"""Shorten what the harness learns about this machine, and give a module caches of its own where it asks for them."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from runners.harness.oracle.client import OracleClient
from runners.harness.oracle.confinement import oracle_policy
from runners.harness.oracle.pool import CPU, TrustedPool
from runners.harness.oracle.zygote import Zygote
from runners.harness.processes.preloading import META_DEVICE, TORCH
from runners.harness.timing import noise
from runners.sandbox import fork_server
from runners.sandbox.fork_server import ForkServer


@pytest.fixture(autouse=True, scope="module")
def rough_noise_floor() -> Iterator[None]:
    """Measure the noise floor, which all evaluations of a test run share, by few comparisons.

    It comes out wider than by many, so that a verdict is rather too careful.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "MOST_COMPARISONS", 3)
        yield


@pytest.fixture(scope="module")
def fresh_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the module's evaluations find no build and no cache of earlier ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSCI_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@cache
def process_with_torch() -> Zygote:
    """Start the process from which oracles of tests' own problems are forked."""
    process = Zygote(oracle_policy(CPU), (*TORCH, META_DEVICE))
    atexit.register(process.close)
    return process


@pytest.fixture(scope="module")
def one_torch_for_all_problems() -> Iterator[None]:
    """Fork the oracles of the module's problems from one process, which has imported torch for all of them.

    A problem that we do not ship has a process of its own, so that its code reaches no other problem. Those of tests
    are our own.
    """
    own = TrustedPool._new_oracle

    def forked(pool: TrustedPool) -> OracleClient:
        if pool._device.kind != CPU.kind:
            return own(pool)
        return pool._oracle_of(process_with_torch(), is_alone=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrustedPool, "_new_oracle", forked)
        yield


@pytest.fixture
def servers_of_the_test_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a test fork servers of its own, since a process keeps servers of a few kinds only and executes the rest."""
    own: dict[Any, ForkServer] = {}
    monkeypatch.setattr(fork_server, "_servers", own)
    yield
    for server in own.values():
        server.close()
