"""Account for the device memory of an evaluation: what a problem needs, and what all processes took at their peak."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from runners.errors import TooLarge
from runners.harness.devices.capacity import CONTEXT_BYTES
from runners.harness.devices.device import Device
from runners.harness.devices.nvml import NvmlError, nvml
from runners.harness.memory.contents import Content, Setups
from runners.job import MemoryUse

# Memory is allocated and freed within a call, so a peak lasts only milliseconds.
SAMPLE_S = 0.01
# The oracle and two sides.
PROCESSES = 3
GIB = 1 << 30


@dataclass(frozen=True)
class Need:
    """Hold a problem's size in bytes, and what it takes to compare two programs on it."""

    inputs: int
    weights: int
    outputs: int

    @property
    def footprint(self) -> int:
        """Return inputs, weights and outputs once."""
        return self.inputs + self.weights + self.outputs

    @property
    def needed(self) -> int:
        """Return the least that an evaluation takes in bytes.

        That is an arena of inputs and outputs, inputs again in the oracle, expected outputs and those that a side has
        returned, the weights of three processes, and their contexts.
        """
        return 2 * self.inputs + 3 * self.outputs + 3 * self.weights + PROCESSES * CONTEXT_BYTES


def need_of(content: Content, setups: Setups) -> Need:
    """Return the need of the case to which a content belongs."""
    outputs = sum(output.size_bytes for output in content.outputs)
    name = setups.names.get(content.case.name)
    stored = None if name is None or setups.folder is None else setups.folder / f"{name}.bin"
    weights = stored.stat().st_size if stored is not None else 0
    return Need(sum(content.buffer_sizes) - outputs, weights, outputs)


class MemoryWatch:
    """Sample a device's memory in use while an evaluation runs. Without a library the figures stay empty."""

    # The least that was in use when any evaluation of this process began, by device. Later ones begin while processes
    # of the last are still ending, or stand ready for the next; counted as others', their memory would hide the peak.
    _idle_bytes: ClassVar[dict[str, int]] = {}

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = self._peak = 0
        # What the device has.
        self.total_bytes = 0
        self._need = Need(0, 0, 0)
        self._reference_bytes = 0
        self._ended, self._sampling = threading.Event(), threading.Lock()

    def check(self, needs: list[Need]) -> None:
        """Remember the largest need. Raises TooLarge if the device has less memory than that."""
        self._need = max(needs, key=lambda need: need.needed, default=self._need)
        if self.total_bytes and self._need.needed > self.total_bytes:
            raise TooLarge(f"{too_large(self._need.needed, self.total_bytes)}")

    def has_room(self) -> bool:
        """Return whether at most half of the device's memory is in use, so that inputs can be made while earlier
        evaluations are still ending. The answer is True where nothing tells how much is in use."""
        read = self._read()
        return read is None or read[0] <= read[1] / 2

    def begin(self) -> None:
        """Start counting the peak: earlier evaluations have given their memory back."""
        with self._sampling:
            self._peak = 0
        if self.total_bytes:
            self._sample()

    def note_reference(self, held_bytes: int) -> None:
        """Note the most memory that the tensors of the reference's process took.

        What exceeds a footprint is the reference's own need: intermediate results, and those in double precision.
        """
        self._reference_bytes = max(0, held_bytes - self._need.footprint)

    @property
    def use(self) -> MemoryUse | None:
        """Return the figures, or None where nothing was seen."""
        if not self.total_bytes:
            return None
        peak = max(0, self._peak - self._before)
        return MemoryUse(self._need.footprint, self._need.needed, self.total_bytes, peak, self._reference_bytes)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample beside the block."""
        if not self._sample():
            yield
            return
        index = self._device.index
        self._before = self._idle_bytes[index] = min(self._peak, self._idle_bytes.get(index, self._peak))
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> bool:
        # A figure that was read before `begin` must not be noted after it.
        with self._sampling:
            read = self._read()
            if read is None:
                return False
            used, self.total_bytes = read
            self._peak = max(self._peak, used)
        return True

    def _read(self) -> tuple[int, int] | None:
        """Return the bytes in use and those that the device has, or None where nothing tells."""
        if self._device.kind != "cuda":
            return None
        try:
            return nvml(self._device.index).memory_bytes()
        except NvmlError:
            return None


def too_large(needed: int, available: int) -> str:
    """Describe in words that a problem does not fit."""
    return f"this problem needs {needed / GIB:.1f} GiB of device memory, the device has {available / GIB:.1f} GiB"
