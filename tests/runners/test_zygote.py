"""Test what an evaluation is told of the process that holds torch when that process is missing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runners.errors import InfraFailure
from runners.harness.devices.device import Device
from runners.harness.oracle import zygote as module
from runners.harness.oracle.client import OracleClient
from runners.harness.oracle.confinement import oracle_policy
from runners.harness.oracle.pool import CPU
from runners.harness.oracle.zygote import Zygote
from runners.harness.processes.participant import candidate_policy, thread_count
from runners.job import Limits
from runners.problems import load
from runners.sandbox import Sandboxed, SandboxError, spawn
from runners.sandbox.fork_server import early_variables

pytestmark = pytest.mark.processes


def reference_buffers() -> int:
    """Count the descriptors of reference buffers in this process, in which threads of other tests may still end."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += "reference-buffers" in str(entry.readlink())
    return count


def asked(zygote: Zygote) -> str:
    """Start an oracle of that process, ask it something, and return the message of whichever fails."""
    with pytest.raises(InfraFailure) as failure:
        OracleClient(zygote, is_alone=True).open(load("softmax_rows")).reset()
    zygote.close()
    return str(failure.value)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the command that is started instead of the process with torch."""
    command: list[str] = []

    def start(argv: list[str], *rest: Any, **_: Any) -> Sandboxed:
        return spawn([sys.executable, "-I", "-c", *command], *rest)

    monkeypatch.setattr(module, "spawn", start)
    yield command


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no process be started."""

    def refuse(*_: Any, **__: Any) -> Sandboxed:
        raise SandboxError("no user id is free")

    monkeypatch.setattr(module, "spawn", refuse)


@pytest.mark.usefixtures("refused")
def test_why_the_process_could_not_be_started_is_part_of_the_failure() -> None:
    assert asked(Zygote(oracle_policy(CPU))).endswith("its process did not start: no user id is free")


@pytest.mark.usefixtures("refused")
def test_an_oracle_that_cannot_be_forked_leaves_no_memory_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(*_: Any) -> None:
        raise InfraFailure("the oracle could not be started")

    zygote = Zygote(oracle_policy(CPU))
    monkeypatch.setattr(zygote, "fork", fork)
    before = reference_buffers()
    with pytest.raises(InfraFailure):
        OracleClient(zygote)
    assert reference_buffers() == before


def test_how_the_process_ended_is_part_of_the_failure_with_its_last_line(started: list[str]) -> None:
    started.append("import sys; print('first', file=sys.stderr); sys.exit('torch is broken')")
    assert asked(Zygote(oracle_policy(CPU))).endswith("its process ended: exit code 1: torch is broken")


def test_a_signal_that_ended_the_process_is_named(started: list[str]) -> None:
    started.append("import os; os.kill(os.getpid(), 11)")
    assert asked(Zygote(oracle_policy(CPU))).endswith("its process ended: signal 11")


def test_a_process_that_is_still_starting_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def start(*_: Any, **__: Any) -> Sandboxed:
        go_on.wait()
        raise SandboxError("too late")

    monkeypatch.setattr(module, "spawn", start)
    monkeypatch.setattr(module, "ENDING_S", 0.01)
    zygote = Zygote(oracle_policy(CPU))
    assert zygote.why_ended() == "its process is still starting"
    go_on.set()
    zygote.close()


@pytest.mark.parametrize(("kind", "queues"), [("cpu", None), ("cuda", "1"), ("hip", None)])
def test_an_oracle_opens_a_gpu_with_one_queue_and_a_candidate_with_as_many_as_usual_unless_told_otherwise(
    kind: str, queues: str | None
) -> None:
    device = Device(kind)
    assert oracle_policy(device).env.get("CUDA_DEVICE_MAX_CONNECTIONS") == queues
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in candidate_policy(device, Limits(), 1, ()).env


def test_both_are_forked_from_one_process_with_torch() -> None:
    oracle = oracle_policy(Device("cuda"))
    candidate = candidate_policy(Device("cuda"), Limits(), thread_count(), ())
    assert early_variables(oracle.env) == early_variables(candidate.env)
