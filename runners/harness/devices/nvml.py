"""Read NVIDIA's management library through ctypes: the figures of `nvidia-smi` without starting that program.

Each start of `nvidia-smi` opens the device anew, which takes as long as opening it for a kernel and blocks processes
that do. The library is opened once per process and kept; a forked child opens it again. Nothing is set.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

# NVML_CLOCK_SM and NVML_CLOCK_MEM.
SM, MEMORY = 1, 2
MOST_PROCESSES = 1024
# The library tells structure versions apart by size and version number in one word (NVML_STRUCT_VERSION).
MEMORY_VERSION = 40 | 2 << 24
# NVML_DEVICE_UUID_V2_BUFFER_SIZE.
UUID_BYTES = 96
# NVML_ERROR_NOT_SUPPORTED: the device does not have what is asked for.
NOT_SUPPORTED = 3


class NvmlError(OSError):
    """Report that the library or one of its calls is absent, or that a call failed, with its `code`."""

    def __init__(self, said: str, code: int = 0) -> None:
        super().__init__(said)
        self.code = code


class Utilisation(ctypes.Structure):
    """Mirror nvmlUtilization_t: per cent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    """Mirror nvmlMemory_v2_t: bytes."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Process(ctypes.Structure):
    """Mirror nvmlProcessInfo_t: one process that computes on the device."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """Read one device, by its index or UUID. Raises NvmlError."""

    def __init__(self, index: str) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(str(error)) from error
        # The library counts initialisations and is never shut down here: the process keeps it until it ends.
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        if index.isdigit():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(index)), ctypes.byref(self._device))
        else:
            self._call("nvmlDeviceGetHandleByUUID", index.encode(), ctypes.byref(self._device))

    def uuid(self) -> str:
        """Return the name of the device that no other device has."""
        text = ctypes.create_string_buffer(UUID_BYTES)
        self._ask("UUID", text, ctypes.c_uint(UUID_BYTES))
        return text.value.decode()

    def minor(self) -> int:
        """Return the number N of the device's file, /dev/nvidiaN."""
        return self._number("MinorNumber")

    def has_mig_enabled(self) -> bool:
        """Return whether the device is partitioned (MIG), so that a process gets one of its instances."""
        now, after_restart = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._ask("MigMode", ctypes.byref(now), ctypes.byref(after_restart))
        except NvmlError as error:
            # A library or a device without MIG. Any other failure says nothing about the device.
            if error.code not in (0, NOT_SUPPORTED):
                raise
            return False
        return now.value == 1

    def now(self) -> dict[str, float | str]:
        """Return clocks in MHz, power in W, temperature in °C, load in per cent, memory in MiB, and reasons for lower
        clocks."""
        used = Utilisation()
        self._ask("UtilizationRates", ctypes.byref(used))
        memory = Memory(version=MEMORY_VERSION)
        self._ask("MemoryInfo_v2", ctypes.byref(memory))
        reasons = ctypes.c_ulonglong()
        self._ask("CurrentClocksThrottleReasons", ctypes.byref(reasons))
        return {
            "clock_mhz": float(self._number("ClockInfo", SM)),
            "memory_clock_mhz": float(self._number("ClockInfo", MEMORY)),
            "power_w": self._number("PowerUsage") / 1e3,
            "temperature_c": float(self._number("Temperature", 0)),
            "utilisation_percent": float(used.gpu),
            "memory_used_mib": float(memory.used >> 20),
            "throttle_reasons": f"{reasons.value:#018x}",
        }

    def memory_bytes(self) -> tuple[int, int]:
        """Return the bytes in use by anybody, and the device's memory."""
        memory = Memory(version=MEMORY_VERSION)
        self._ask("MemoryInfo_v2", ctypes.byref(memory))
        return memory.used, memory.total

    def processes(self) -> set[int]:
        """Return the ids of the processes that compute on it."""
        count = ctypes.c_uint(MOST_PROCESSES)
        found = (Process * MOST_PROCESSES)()
        self._ask("ComputeRunningProcesses_v3", ctypes.byref(count), found)
        return {found[number].pid for number in range(count.value)}

    def _number(self, what: str, *kinds: int) -> int:
        value = ctypes.c_uint()
        self._ask(what, *map(ctypes.c_uint, kinds), ctypes.byref(value))
        return value.value

    def _ask(self, what: str, *arguments: object) -> None:
        self._call(f"nvmlDeviceGet{what}", self._device, *arguments)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError as error:
            raise NvmlError(f"this library has no {name}") from error
        if code:
            raise NvmlError(f"{name} failed with error {code}", code)


def nvml(index: str) -> Nvml:
    """Return the device of that index or UUID. Raises NvmlError."""
    return _opened(index, os.getpid())


@cache
def _opened(index: str, pid: int) -> Nvml:
    return Nvml(index)
