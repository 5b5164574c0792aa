"""Candidates on a GPU: the same callees on an arena in device memory, timed by the device's clock."""

from __future__ import annotations

import ctypes
from typing import Any

from . import insight, parameters
from .device_clock import DeviceClock
from .driver import Driver
from .native import NativeCallee


class GpuNativeCallee(NativeCallee):
    """A C function with a trailing stream argument, which is the default stream."""

    def __init__(self, path: str, symbol: str, base: int, device_clock: DeviceClock, setups: str) -> None:
        super().__init__(path, symbol, base, setups=setups)
        self._clock = device_clock

    def _opened(self, case: dict[str, Any]) -> Any:
        """The case's parameters, copied into device memory of this process."""
        found = parameters.opened(self._setups, case)
        return None if found is None else DeviceParameters(found, self._clock.driver)

    def prepare(self, call: dict[str, list[float]]) -> list[object]:
        """The C arguments, the stream last."""
        return [*super().prepare(call), ctypes.c_void_p(None)]

    def run(self, arguments: list[object]) -> int:
        """One call; nanoseconds of device time."""
        return self._clock.time(self._function, arguments)[0]

    def replays_ns(self, arguments: list[object]) -> list[int]:
        """Device time of replays from a graph. Raises DriverError where the call can't be captured."""
        replay = self._clock.driver.captured(lambda stream: self._function(*arguments[:-1], stream))
        return insight.replays_ns(replay, self._clock)

    def repeat(self, arguments: list[object], count: int) -> None:
        """The function alone, for a profiler."""
        insight.repeat(lambda: self._function(*arguments), count, self._clock)

    def kernels(self, arguments: list[object]) -> list[tuple[str, int, float]]:
        """What a call launches. Needs torch in this process."""
        return insight.kernels(lambda: self._function(*arguments))

    def report(self) -> dict[str, Any]:
        """What the device's clock saw beside the times."""
        return self._clock.take()


class DeviceParameters:
    """A copy of a case's parameters in device memory. A kernel that writes to it spoils its own later calls alone: every
    process has its own, and outputs of any call may be checked."""

    def __init__(self, found: parameters.Parameters, driver: Driver) -> None:
        self._driver, self._offsets = driver, found.offsets
        self._base = driver.allocate(found.size_bytes)
        driver.copy_in(self._base, found.base, found.size_bytes)
        found.close()

    def address(self, name: str) -> int:
        """Where a parameter lies on the device. KeyError for a name that the state dict does not have."""
        return self._base + self._offsets[name]

    def close(self) -> None:
        """Give the memory back."""
        self._driver.synchronize()
        self._driver.free(self._base)


def open_device(device: dict[str, Any], descriptor: int) -> tuple[int, DeviceClock]:
    """Address of the arena and the clock, on the device that the referee described."""
    driver = Driver(device["kind"])
    base = driver.open_shared(descriptor, device["size_bytes"])
    return base, DeviceClock(driver, device["flush_bytes"])


def open_callee(kind: str, path: str, symbol: str, setups: str, device: dict[str, Any], descriptor: int) -> Any:
    """Load the artefact onto the device's arena."""
    base, device_clock = open_device(device, descriptor)
    if kind == "native":
        return GpuNativeCallee(path, symbol, base, device_clock, setups)
    from .device_bytes import DeviceBytes
    from .gpu_module import GpuModuleCallee

    return GpuModuleCallee(path, DeviceBytes(base), setups, device_clock)
