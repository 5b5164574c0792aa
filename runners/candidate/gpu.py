"""Run candidates on a GPU: the same callees on an arena in device memory, timed by the device's clock."""

from __future__ import annotations

import ctypes
from typing import Any

from . import insight, parameters
from .device_clock import DeviceClock, Reached
from .driver import Driver
from .gate import gate_on
from .native import NativeCallee


class GpuNativeCallee(NativeCallee):
    """Call a C function with a trailing stream argument, which is the default stream."""

    def __init__(self, path: str, symbol: str, base: int, device_clock: DeviceClock, setups: str) -> None:
        super().__init__(path, symbol, base, setups=setups)
        self._clock = device_clock

    def _opened(self, case: dict[str, Any]) -> Any:
        """Copy the case's parameters into device memory of this process."""
        found = parameters.opened(self._setups, case)
        return None if found is None else DeviceParameters(found, self._clock.driver)

    def prepare(self, call: dict[str, list[float]]) -> list[object]:
        """Return the C arguments, the stream last."""
        return [*super().prepare(call), ctypes.c_void_p(None)]

    def run(self, arguments: list[object]) -> int:
        """Make one call that is not held, and return the time between its events in ns."""
        return self._clock.time(self._function, arguments)[0]

    def arm(self, arguments: list[object]) -> int:
        """Enqueue one call behind the gate, and return the host's time for that in ns."""
        return self._clock.arm(self._function, arguments)[0]

    def reach(self) -> Reached:
        """Wait for the call that was armed."""
        return self._clock.reach()

    def steady(self, calls: list[list[object]], warm_ns: int, repeats: int) -> list[int]:
        """Make calls in a loop, and return the two times of `DeviceClock.steady`."""
        return self._clock.steady(self._function, calls, warm_ns, repeats)[0]

    def replays_ns(self, arguments: list[object]) -> list[int]:
        """Return device times in ns of replays from a graph. Raises DriverError if the call cannot be captured."""
        replay = self._clock.driver.captured(lambda stream: self._function(*arguments[:-1], stream))
        return insight.replays_ns(replay, self._clock)

    def repeat(self, arguments: list[object], count: int) -> None:
        """Call the function and nothing else, for a profiler."""
        insight.repeat(lambda: self._function(*arguments), count, self._clock)

    def kernels(self, arguments: list[object]) -> list[tuple[str, int, float]]:
        """Return what a call launches (see `insight.kernels`). Needs torch in this process."""
        return insight.kernels(lambda: self._function(*arguments))

    def release(self) -> int:
        """Return 0: this process knows of no memory that a C function keeps."""
        return 0

    def floor_ns(self) -> list[int]:
        """Return device times in ns of the smallest possible launch."""
        return self._clock.floor_ns()


class DeviceParameters:
    """Copy a case's parameters into device memory.

    Every process has its own copy, so that a kernel that writes to them spoils only its own later calls, any of which
    may be checked.
    """

    def __init__(self, found: parameters.Parameters, driver: Driver) -> None:
        self._driver, self._offsets = driver, found.offsets
        self._base = driver.allocate(found.size_bytes)
        driver.copy_in(self._base, found.base, found.size_bytes)
        found.close()

    def address(self, name: str) -> int:
        """Return a parameter's address on the device. Raises KeyError for a name that the state dict does not have."""
        return self._base + self._offsets[name]

    def close(self) -> None:
        """Free the memory."""
        self._driver.synchronize()
        self._driver.free(self._base)


def open_device(device: dict[str, Any], arena_fd: int, gate_fd: int) -> tuple[int, DeviceClock]:
    """Return the arena's address and the clock, on the device that the referee described. Raises DriverError."""
    driver = Driver(device["kind"])
    base = driver.open_shared(arena_fd, device["size_bytes"])
    return base, DeviceClock(driver, device["flush_bytes"], gate_on(driver, gate_fd))


def open_callee(
    kind: str, path: str, symbol: str, setups: str, device: dict[str, Any], arena_fd: int, gate_fd: int
) -> Any:
    """Load the artefact onto the device's arena."""
    base, device_clock = open_device(device, arena_fd, gate_fd)
    if kind == "native":
        return GpuNativeCallee(path, symbol, base, device_clock, setups)
    from .device_bytes import DeviceBytes
    from .gpu_module import GpuModuleCallee

    return GpuModuleCallee(path, DeviceBytes(base), setups, device_clock)
