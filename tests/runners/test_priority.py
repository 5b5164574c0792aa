"""Test how processes that are timed are raised and confined."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.harness.processes.priority import pin_tree

FAMILY = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"


@pytest.fixture
def family() -> Iterator[list[int]]:
    """Start a process with a child and yield both process ids."""
    parent = subprocess.Popen([sys.executable, "-c", FAMILY])
    children: list[int] = []
    while not children:
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
        children = [int(pid) for pid in listed.split()]
    yield [parent.pid, *children]
    for pid in children:
        os.kill(pid, 9)
    parent.wait()


def test_everything_below_a_process_is_confined_and_let_go_again(family: list[int]) -> None:
    everywhere = os.sched_getaffinity(0)
    one = {max(everywhere)}
    pin_tree(family[0], one)
    assert [os.sched_getaffinity(pid) for pid in family] == [one, one]
    pin_tree(family[0], everywhere)
    assert [os.sched_getaffinity(pid) for pid in family] == [everywhere, everywhere]


def test_a_process_that_has_ended_is_passed_over() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    pin_tree(done.pid, os.sched_getaffinity(0))
