"""Processes started before anybody asks for them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from runners.errors import InfraFailure
from runners.harness.devices.capacity import Standing as Limited
from runners.harness.devices.device import Device
from runners.harness.oracle.pool import TrustedPool
from runners.harness.processes import warm_pool, warm_workers
from runners.harness.processes.peer import Peer
from runners.harness.processes.preloading import modules_for
from runners.harness.processes.warm_pool import Entry, WarmPool, open_device
from runners.harness.processes.work_queues import ONE_QUEUE
from runners.job import Limits
from runners.sandbox import SandboxLevel, SandboxPolicy, python_paths, run


@pytest.fixture(autouse=True)
def locks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))


class Made:
    """Hold what a start made."""

    def __init__(self) -> None:
        self.alive, self.closed = True, False

    def close(self) -> None:
        self.closed = True


def queue(start: Callable[[threading.Event], Made]) -> WarmPool[Made]:
    return WarmPool("test", lambda wanted, kind: start(wanted), lambda made: made.alive, Made.close, 12)


class Deaf(Peer):
    """Note what it is asked and answer at once."""

    def __init__(self, asked: list[str]) -> None:
        super().__init__()
        self.asked = asked

    def ask(self, question: dict[str, Any], timeout_s: float, *_: Any) -> dict[str, Any]:
        self.asked.append(question["op"])
        return {}


def test_nothing_is_there_until_something_was_expected() -> None:
    waiting = queue(lambda wanted: Made())
    assert waiting.take() is None
    waiting.expect(1)
    assert isinstance(waiting.take(), Made)
    assert waiting.take() is None


def test_a_start_that_failed_and_one_that_died_are_passed_over() -> None:
    dead, living = Made(), Made()
    dead.alive = False
    outcomes: Iterator[InfraFailure | Made] = iter([InfraFailure("no"), dead, living])

    def start(wanted: threading.Event) -> Made:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    waiting = queue(start)
    for _ in range(3):
        wanted = threading.Event()
        waiting._ready.append(Entry(waiting._threads.submit(start, wanted), wanted, kind=False))
        waiting._ready[-1].future.exception()
    assert waiting.take() is living
    assert dead.closed


def test_whoever_takes_a_process_says_so_to_its_start() -> None:
    """The holder of a device must not wait for a process that waits for the device to be free."""
    waiting = queue(lambda wanted: Made() if wanted.wait(5.0) else pytest.fail("nobody said so"))
    waiting.expect(1)
    assert waiting.take() is not None


def test_only_what_an_evaluation_needs_is_started_and_what_is_left_of_the_last_one_counts() -> None:
    started: list[Made] = []

    def start(wanted: threading.Event) -> Made:
        made = Made()
        started.append(made)
        return made

    waiting = queue(start)
    waiting.expect(3)
    taken = waiting.take()
    waiting.expect(3)
    waiting.expect(2)
    wait(entry.future for entry in waiting._ready)
    waiting.close()
    assert len(started) == 4 and [made for made in started if not made.closed] == [taken]


def test_the_device_is_not_opened_while_somebody_times_there() -> None:
    asked: list[str] = []
    wanted = threading.Event()
    device = Device("test")
    with device.exclusively():
        wanted.set()
        open_device(Deaf(asked), device, wanted)
    assert asked == []
    open_device(Deaf(asked), device, threading.Event())
    assert asked == ["warm"]
    assert warm_pool._opening._value == 2


def test_a_process_that_an_evaluation_waits_for_does_not_wait_for_its_turn() -> None:
    asked: list[str] = []
    wanted = threading.Event()
    for _ in range(2):
        warm_pool._opening.acquire()
    try:
        wanted.set()
        open_device(Deaf(asked), Device("test"), wanted)
    finally:
        warm_pool._opening.release(2)
    assert asked == []


class Standing:
    """Represent a sandboxed process that can be stopped."""

    def __init__(self) -> None:
        self.stopped, self.alive, self.level = False, True, SandboxLevel.BUBBLEWRAP

    def pause(self) -> int:
        self.stopped = True
        return 0

    def resume(self) -> None:
        self.stopped = False


class Begun:
    """Represent a spare whose start takes until it is told to end."""

    def __init__(self) -> None:
        self.process, self.peer, self.begun, self.go_on = Standing(), Deaf([]), threading.Event(), threading.Event()
        self.queues: dict[str, str] = {}

    def close(self) -> None:
        self.process.alive = False


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    spare = Begun()

    def open_slowly(*_: Any) -> None:
        spare.begun.set()
        spare.go_on.wait(5.0)

    monkeypatch.setattr(warm_workers, "start_worker", lambda *_: spare)
    monkeypatch.setattr(warm_workers, "candidate_policy", lambda *_: None)
    monkeypatch.setattr(warm_workers, "open_device", open_slowly)
    return spare


def test_a_start_stands_still_while_somebody_is_timing(begun: Begun) -> None:
    warm_workers_of_device = warm_workers.WarmWorkers(Device("test"))
    warm_workers_of_device.expect(1)
    assert begun.begun.wait(5.0)
    with warm_workers_of_device.quiet():
        assert begun.process.stopped
    assert not begun.process.stopped
    begun.go_on.set()
    assert warm_workers_of_device.take() is not None


def test_a_start_that_timing_waits_for_goes_on(begun: Begun) -> None:
    warm_workers_of_device = warm_workers.WarmWorkers(Device("test"))
    with warm_workers_of_device.quiet():
        warm_workers_of_device.expect(1)
        assert not begun.begun.wait(0.2)
        begun.go_on.set()
        assert warm_workers_of_device.take() is not None


@pytest.mark.processes
@pytest.mark.usefixtures("servers_of_the_test_alone")
def test_a_process_forked_for_triton_has_hashed_its_installation_and_loaded_its_compiler() -> None:
    program = """
import os, sys
assert {"torch", "triton", "triton.backends.nvidia.compiler"} <= set(sys.modules)
from triton.runtime import cache
import hashlib
hashlib.sha256 = None
assert len(cache.triton_key()) > 0
assert "TRITON_CACHE_DIR" not in os.environ
print("ready")
"""
    modules = modules_for(Device("cuda"), with_triton=True)
    done = run([sys.executable, "-I", "-c", program], SandboxPolicy(python_paths()), preloaded=modules)
    assert done.stdout == "ready\n", done.stderr


def test_workers_are_forked_with_triton_once_a_candidate_is_known_to_use_it(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def start(kind: str, policy: None, preload: tuple[str, ...], inbox: Path) -> Begun:
        asked.append(preload)
        return begun

    monkeypatch.setattr(warm_workers, "start_worker", start)
    begun.go_on.set()
    device = Device("cuda")
    for with_triton in (False, True):
        workers = warm_workers.WarmWorkers(device)
        workers.with_triton = with_triton
        workers.expect(1)
        workers.take()
    assert asked == [modules_for(device), modules_for(device, with_triton=True)]
    assert set(asked[1]) > set(asked[0])


def test_an_evaluation_gets_no_worker_with_another_number_of_queues(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_workers, "candidate_policy", lambda *given: given[-1])
    monkeypatch.setattr(warm_workers, "open_device", lambda *_: None)
    started: list[Begun] = []

    def start(kind: str, queues: dict[str, str], *_: Any) -> Begun:
        started.append(Begun())
        started[-1].queues = dict(queues)
        return started[-1]

    monkeypatch.setattr(warm_workers, "start_worker", start)
    pool = TrustedPool(Device("test"))
    for one_stream in (True, False):
        pool.expect(1, with_triton=False, one_stream=one_stream)
        assert pool.warm_workers.take_for(Limits(), one_stream=not one_stream) is None
        assert pool.warm_workers.take_for(Limits(), one_stream=one_stream) is not None
    assert [one.queues for one in started] == [ONE_QUEUE, {}]
    pool.close()


def test_workers_of_the_other_kind_are_ended_once_an_evaluation_needs_none_of_them(begun: Begun) -> None:
    pool = TrustedPool(Device("test"))
    pool.expect(1, with_triton=False, one_stream=True)
    assert begun.begun.wait(5.0)
    begun.go_on.set()
    pool.expect(0, with_triton=False, one_stream=False)
    pool.await_endings()
    assert not begun.process.alive
    pool.close()


def test_starts_that_wait_for_a_timing_do_not_hold_up_an_evaluation_of_the_other_kind(begun: Begun) -> None:
    # All threads of the pool wait for the end of the timing until the other evaluation gives these starts up.
    begun.go_on.set()
    pool, most = TrustedPool(Device("test")), Limited().workers
    with pool._device.exclusively(), pool.warm_workers.quiet():
        pool.expect(most, with_triton=False, one_stream=True)
        pool.expect(1, with_triton=False, one_stream=False)
        assert pool.warm_workers.take_for(Limits(), one_stream=True) is None
        assert pool.warm_workers.take_for(Limits(), one_stream=False) is not None
    pool.close()


def test_an_interpreter_that_exits_ends_all_processes_without_an_error() -> None:
    program = """
import atexit
from runners.harness.processes.warm_pool import WarmPool
pool = WarmPool("test", lambda wanted, kind: kind, lambda made: True, print, 2)
atexit.register(pool.close)
pool.expect(1, False)
pool.expect(1, True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout.split(), ended.stderr) == (["False", "True"], "")
