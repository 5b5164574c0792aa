"""Test how much of the processors others are seen to use while kernels are timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runners.harness.devices import neighbours
from runners.harness.devices.neighbours import Neighbours
from runners.sandbox.meter import TICKS_PER_S, cpu_s_with_ended

SPIN = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"


class Machine:
    """Stand for a machine with two processors, of which this process may use the first two of three."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.own_s, self.stat = 0.0, 5.0, folder / "stat"
        monkeypatch.setattr(neighbours, "STAT", self.stat)
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(neighbours, "cpu_s_with_ended", lambda pids: self.own_s)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        self.use(0.0, 0.0, 0.0)

    def use(self, first_s: float, second_s: float, third_s: float) -> None:
        """Write what the processors have done so far. The fourth field, idle, counts for nothing."""
        rows = [
            f"cpu{n} {round(s * TICKS_PER_S)} 0 0 999999 0 0 0 0 0 0"
            for n, s in enumerate((first_s, second_s, third_s))
        ]
        self.stat.write_text("\n".join(["cpu 1 2 3", *rows, "intr 5"]) + "\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("used", "own_s", "share"),
    [
        ((10.0, 10.0, 0.0), 20.0, 0.0),  # all of it was ours
        ((10.0, 10.0, 10.0), 12.0, 0.4),  # 8 of 20 seconds were others'; the third processor is not ours to use
        ((2.0, 0.0, 0.0), 3.0, 0.0),  # ticks may lag behind
    ],
)
def test_what_is_neither_idle_nor_ours_is_others(
    machine: Machine, used: tuple[float, float, float], own_s: float, share: float
) -> None:
    watch = Neighbours()
    with watch.watched():
        machine.now_s, machine.own_s = 10.0, 5.0 + own_s
        machine.use(*used)
    assert watch.share == pytest.approx(share)


def test_blocks_are_counted_together(machine: Machine) -> None:
    watch = Neighbours()
    for end_s, used in ((10.0, (10.0, 10.0, 0.0)), (20.0, (10.0, 10.0, 0.0))):
        with watch.watched():
            machine.now_s = end_s
            machine.use(*used)
    assert watch.share == pytest.approx(0.5)


def test_a_kernel_that_does_not_say_leaves_the_share_unknown(machine: Machine) -> None:
    machine.stat.unlink()
    watch = Neighbours()
    with watch.watched():
        machine.now_s = 10.0
    assert watch.share is None


def test_processes_that_ended_count_as_ours() -> None:
    before_s = cpu_s_with_ended([os.getpid()])
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert cpu_s_with_ended([os.getpid()]) - before_s >= 0.19
