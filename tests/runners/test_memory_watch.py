"""Test the account of an evaluation's device memory, with a library that reports what the test says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runners.errors import TooLarge
from runners.harness.devices.device import Device
from runners.harness.devices.nvml import NvmlError
from runners.harness.memory import usage
from runners.harness.memory.usage import SAMPLE_S, MemoryWatch, Need

GIB = 1 << 30
TOTAL = 80 * GIB


class Memory:
    """Stand for the memory of a device."""

    used = reads = 0

    def read(self) -> tuple[int, int]:
        """Return what is in use, and what the device has."""
        self.reads += 1
        return self.used, TOTAL

    def show(self, used: int) -> None:
        """Show that so much is in use until it was seen; a reading that is under way may have begun before."""
        self.used, seen, deadline = used, self.reads + 2, time.monotonic() + 30.0
        while self.reads < seen:
            assert time.monotonic() < deadline
            time.sleep(SAMPLE_S)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    shown = Memory()
    library = SimpleNamespace(memory_bytes=shown.read)
    monkeypatch.setattr(usage, "nvml", lambda index: library)
    monkeypatch.setattr(MemoryWatch, "_idle_bytes", {})
    yield shown


def watched(memory: Memory, *in_use: int) -> MemoryWatch:
    """Watch an evaluation; `in_use` is what the device shows at its start and then during it."""
    watch, (first, *others) = MemoryWatch(Device("cuda")), in_use
    memory.used = first
    with watch.watching():
        for used in others:
            memory.show(used)
    return watch


def test_a_peak_is_what_an_evaluation_took_beyond_what_others_hold(memory: Memory) -> None:
    found = watched(memory, 3 * GIB, 10 * GIB, 4 * GIB).use
    assert found is not None and found.peak_bytes == 7 * GIB and found.available_bytes == TOTAL


def test_processes_that_an_earlier_evaluation_left_do_not_hide_the_peak(memory: Memory) -> None:
    watched(memory, 1 * GIB, 20 * GIB)
    found = watched(memory, 18 * GIB, 12 * GIB).use
    assert found is not None and found.peak_bytes == 17 * GIB


def test_what_an_earlier_evaluation_still_held_at_the_start_is_not_counted(memory: Memory) -> None:
    watched(memory, 1 * GIB)
    watch = MemoryWatch(Device("cuda"))
    memory.used = 30 * GIB
    with watch.watching():
        memory.used = 4 * GIB
        watch.begin()
        memory.show(9 * GIB)
    assert watch.use is not None and watch.use.peak_bytes == 8 * GIB


def test_what_the_reference_needs_is_told_apart_from_the_footprint(memory: Memory) -> None:
    watch = watched(memory, 1 * GIB, 2 * GIB)
    watch.check([Need(inputs=GIB, weights=GIB, outputs=GIB)])
    watch.note_reference(10 * GIB)
    assert watch.use is not None and watch.use.reference_bytes == 7 * GIB
    watch.note_reference(2 * GIB)
    assert watch.use.reference_bytes == 0


def test_a_problem_larger_than_the_device_is_refused_with_both_figures(memory: Memory) -> None:
    watch = watched(memory, 0)
    with pytest.raises(TooLarge, match=r"93\.\d GiB of device memory, the device has 80\.0 GiB"):
        watch.check([Need(inputs=30 * GIB, weights=0, outputs=10 * GIB + 500 * (1 << 20))])


def test_without_a_library_there_are_no_figures() -> None:
    watch = MemoryWatch(Device("cpu"))
    with watch.watching():
        pass
    assert watch.use is None


@pytest.mark.parametrize(("used", "has_room"), [(0, True), (40 * GIB, True), (41 * GIB, False)])
def test_inputs_are_made_ahead_only_where_half_of_the_device_is_free(
    used: int, has_room: bool, memory: Memory
) -> None:
    memory.used = used
    assert MemoryWatch(Device("cuda")).has_room() is has_room


def test_there_is_room_where_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(index: str) -> None:
        raise NvmlError("no library")

    monkeypatch.setattr(usage, "nvml", absent)
    assert MemoryWatch(Device("cuda")).has_room() and MemoryWatch(Device("cpu")).has_room()
