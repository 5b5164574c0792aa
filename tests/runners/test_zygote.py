"""Test what an evaluation is told of the process that holds torch when that process is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from runners.errors import InfraFailure
from runners.harness.oracle import zygote as module
from runners.harness.oracle.client import OracleClient
from runners.harness.oracle.confinement import oracle_policy
from runners.harness.oracle.pool import CPU
from runners.harness.oracle.zygote import Zygote
from runners.problems import load
from runners.sandbox import Sandboxed, SandboxError, spawn

pytestmark = pytest.mark.processes


def asked(zygote: Zygote) -> str:
    """Ask an oracle of that process something, and return the failure's message."""
    oracle = OracleClient(zygote, is_alone=True)
    try:
        with pytest.raises(InfraFailure) as failure:
            oracle.open(load("softmax_rows")).reset()
    finally:
        oracle.close()
    return str(failure.value)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the command that is started instead of the process with torch."""
    command: list[str] = []

    def start(argv: list[str], *rest: Any, **_: Any) -> Sandboxed:
        return spawn([sys.executable, "-I", "-c", *command], *rest)

    monkeypatch.setattr(module, "spawn", start)
    yield command


def test_why_the_process_could_not_be_started_is_part_of_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Sandboxed:
        raise SandboxError("no user id is free")

    monkeypatch.setattr(module, "spawn", refuse)
    assert asked(Zygote(oracle_policy(CPU))).endswith("; its process did not start: no user id is free")


def test_how_the_process_ended_is_part_of_the_failure_with_its_last_line(started: list[str]) -> None:
    started.append("import sys; print('first', file=sys.stderr); sys.exit('torch is broken')")
    assert asked(Zygote(oracle_policy(CPU))).endswith("; its process ended (exit code 1): torch is broken")


def test_a_signal_that_ended_the_process_is_named(started: list[str]) -> None:
    started.append("import os; os.kill(os.getpid(), 11)")
    assert asked(Zygote(oracle_policy(CPU))).endswith("; its process ended (signal 11)")
