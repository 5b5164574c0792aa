"""A paused job stands still, whatever it has started, and can still be ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest

from runners.sandbox import ResourceLimits, Sandboxed, SandboxPolicy, python_paths, spawn

pytestmark = pytest.mark.processes

TICKS = """
import os, threading, time
def tick(letter):
    while True:
        os.write({fd}, letter)
        time.sleep(0.002)
if os.fork() == 0:
    tick(b"c")
threading.Thread(target=tick, args=(b"t",), daemon=True).start()
tick(b"m")
"""


@pytest.fixture
def ticking() -> Iterator[tuple[Sandboxed, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    policy = SandboxPolicy(read_only=python_paths(), limits=ResourceLimits(wall_s=60))
    job = spawn([sys.executable, "-I", "-c", TICKS.format(fd=writing)], policy, (writing,))
    os.close(writing)
    yield job, reading
    job.kill()
    assert job.wait(10) is not None
    os.close(reading)


def heard(reading: int, wait_s: float) -> set[str]:
    time.sleep(wait_s)
    try:
        return set(os.read(reading, 1 << 20).decode())
    except BlockingIOError:
        return set()


def until(reading: int, wanted: set[str]) -> bool:
    found: set[str] = set()
    deadline = time.monotonic() + 20
    while not wanted <= found and time.monotonic() < deadline:
        found |= heard(reading, 0.05)
    return wanted <= found


def test_threads_and_children_stand_still_until_the_job_is_resumed(ticking: tuple[Sandboxed, int]) -> None:
    job, reading = ticking
    assert until(reading, {"m", "t", "c"})
    job.pause()
    heard(reading, 0.2)
    assert heard(reading, 0.5) == set()
    job.resume()
    assert until(reading, {"m", "t", "c"})


def test_paused_job_can_be_ended(ticking: tuple[Sandboxed, int]) -> None:
    job, reading = ticking
    assert until(reading, {"m", "c"})
    job.pause()
    started = time.monotonic()
    job.kill()
    assert job.wait(10) is not None
    assert time.monotonic() - started < 5
