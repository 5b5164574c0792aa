"""Call the GPU's driver through ctypes: shared memory, fills, events. CUDA, or HIP, which has the same calls.

Standard library only, so that a kernel with a C signature is timed without torch. Device memory is shared between
processes as a file descriptor (virtual memory management API), which crosses a sandbox like any other descriptor.
Functions are taken from the library once, before any candidate code is loaded. HIP is written from its documentation
and untested on AMD hardware.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

# The driver's library, not the runtime's: it is installed with the kernel module and needs no toolkit.
LIBRARIES = {"cuda": ("cu", "libcuda.so.1"), "hip": ("hip", "libamdhip64.so")}
# Both drivers name most calls alike. These differ, or have a version suffix that the header hides behind a macro.
RENAMED = {
    "cuda": {
        "MemAlloc": "cuMemAlloc_v2",
        "MemFree": "cuMemFree_v2",
        "MemcpyHtoD": "cuMemcpyHtoD_v2",
        "MemHostRegister": "cuMemHostRegister_v2",
        "MemHostGetDevicePointer": "cuMemHostGetDevicePointer_v2",
        "Synchronize": "cuCtxSynchronize",
        "StreamBeginCapture": "cuStreamBeginCapture_v2",
    },
    "hip": {
        "MemAlloc": "hipMalloc",
        "MemFree": "hipFree",
        "MemHostRegister": "hipHostRegister",
        "MemHostGetDevicePointer": "hipHostGetDevicePointer",
        "Synchronize": "hipDeviceSynchronize",
        "EventCreate": "hipEventCreateWithFlags",
    },
}
# CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
# CU_MEM_ACCESS_FLAGS_PROT_READWRITE of cuda.h; the HIP headers have the same values.
PINNED, ON_DEVICE, FILE_DESCRIPTOR, READ_WRITE = 1, 1, 1, 3
# CUDA_ERROR_OUT_OF_MEMORY and hipErrorOutOfMemory.
OUT_OF_MEMORY = 2
# Faults of kernels, by their CUDA_ERROR_… numbers in cuda.h. HIP uses the same numbers for the faults it has. A driver
# reports a fault from a later, unrelated call.
FAULTS = {
    700: "a kernel accessed an illegal address",
    702: "a kernel took too long",
    714: "a kernel corrupted its stack or the stack grew too large",
    715: "a kernel executed an illegal instruction; on Hopper, a copy by a tensor map is one too if its innermost "
    "coordinate is not a multiple of 16 bytes",
    716: "a kernel accessed an address that is not aligned as the instruction needs it",
    717: "a kernel accessed an address outside the instruction's address space",
    718: "a kernel's program counter is invalid",
    719: "a kernel failed on the device, for example by an access beyond its shared memory",
}
# CU_STREAM_NON_BLOCKING and CU_STREAM_CAPTURE_MODE_RELAXED.
NON_BLOCKING, RELAXED = 1, 2


class DriverError(RuntimeError):
    """Report that a call of the driver failed. The message names the call and its error number."""


class OutOfMemoryError(DriverError):
    """Report that the device does not have that much memory left."""


class Location(ctypes.Structure):
    """Mirror CUmemLocation: the kind of memory and the device's number."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """Mirror CUmemAllocationProp (hipMemAllocationProp): the kind of memory that is requested."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """Mirror CUmemAccessDesc: the permitted use of a mapping."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Driver:
    """Drive the first visible device of this process. Kind `cuda` or `hip`."""

    def __init__(self, kind: str) -> None:
        self._prefix, library = LIBRARIES[kind]
        self.kind = kind
        self._library = ctypes.CDLL(library)
        self._functions: dict[str, Any] = {}
        self.call("Init", 0)
        self._enter()
        # Candidate code may replace symbols of the library later, so what is timed with is looked up first.
        self._set, self._synchronize = self.function("MemsetD8Async"), self.function("Synchronize")

    def _enter(self) -> None:
        """Make the primary context current, which torch and the runtime library use too."""
        device = ctypes.c_int()
        self.call("DeviceGet", ctypes.byref(device), 0)
        context = ctypes.c_void_p()
        if self.kind == "hip":
            self.call("SetDevice", 0)
            return
        self.call("DevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("CtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        """Call a driver function by its name without prefix. Raises DriverError."""
        self.check(name, self.function(name)(*arguments))

    def check(self, name: str, code: int) -> None:
        """Raise DriverError for a code that is not 0."""
        if code == OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{self._prefix}{name}: out of device memory")
        if code:
            fault = f": {FAULTS[code]}" if code in FAULTS else ""
            raise DriverError(f"{self._prefix}{name} failed with error {code}{fault}")

    def function(self, name: str) -> Any:
        """Return a driver function by its name without prefix; it returns an error number."""
        if name not in self._functions:
            real = RENAMED[self.kind].get(name, f"{self._prefix}{name}")
            self._functions[name] = getattr(self._library, real)
        return self._functions[name]

    def attribute(self, number: int) -> int:
        """Return an attribute of the device by its number in the driver's header. Raises DriverError."""
        value = ctypes.c_int()
        self.call("DeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def synchronize(self) -> None:
        """Wait for everything on the device, on every stream. Raises DriverError for an earlier fault."""
        self.check("Synchronize", self._synchronize())

    def mark_profile(self, what: str) -> None:
        """Mark the `Start` or `Stop` of what a profiler around this process counts; AMD's profilers have no such
        mark."""
        if self.kind == "cuda":
            self.call(f"Profiler{what}")

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """Set memory to one byte's value, in order with the default stream; return at once."""
        self.check("MemsetD8Async", self._set(ctypes.c_void_p(address), byte, ctypes.c_size_t(size_bytes), None))

    def allocate(self, size_bytes: int) -> int:
        """Allocate device memory of this process."""
        address = ctypes.c_void_p()
        self.call("MemAlloc", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address.value or 0

    def free(self, address: int) -> None:
        """Free what `allocate` returned."""
        self.call("MemFree", ctypes.c_void_p(address))

    def copy_in(self, address: int, host_address: int, size_bytes: int) -> None:
        """Copy from the host's memory to the device's, and wait for it."""
        self.call(
            "MemcpyHtoD", ctypes.c_void_p(address), ctypes.c_void_p(host_address), ctypes.c_size_t(size_bytes)
        )

    def share(self, size_bytes: int) -> tuple[int, int, int]:
        """Allocate device memory that other processes may map. Return its address, rounded size and descriptor."""
        wanted = Properties(PINNED, FILE_DESCRIPTOR, Location(ON_DEVICE, 0))
        step = ctypes.c_size_t()
        self.call("MemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(wanted), 0)
        rounded = -(-size_bytes // step.value) * step.value
        handle = ctypes.c_ulonglong()
        self.call(
            "MemCreate", ctypes.byref(handle), ctypes.c_size_t(rounded), ctypes.byref(wanted), ctypes.c_ulonglong(0)
        )
        descriptor = ctypes.c_int()
        self.call(
            "MemExportToShareableHandle", ctypes.byref(descriptor), handle, FILE_DESCRIPTOR, ctypes.c_ulonglong(0)
        )
        return self._mapped(handle, rounded), rounded, descriptor.value

    def open_shared(self, descriptor: int, size_bytes: int) -> int:
        """Map memory that another process shared, and return its address here."""
        handle = ctypes.c_ulonglong()
        # The call takes the descriptor itself in place of a pointer.
        where = ctypes.c_void_p(descriptor)
        self.call("MemImportFromShareableHandle", ctypes.byref(handle), where, FILE_DESCRIPTOR)
        return self._mapped(handle, size_bytes)

    def _mapped(self, handle: ctypes.c_ulonglong, size_bytes: int) -> int:
        size, zero = ctypes.c_size_t(size_bytes), ctypes.c_ulonglong(0)
        address = ctypes.c_ulonglong()
        self.call("MemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), zero, zero)
        self.call("MemMap", address, size, ctypes.c_size_t(0), handle, zero)
        access = Access(Location(ON_DEVICE, 0), READ_WRITE)
        self.call("MemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
        # The mapping keeps the memory alive; the handle would keep it after the last mapping is gone.
        self.call("MemRelease", handle)
        return address.value

    def unmap(self, address: int, size_bytes: int) -> None:
        """Undo `share` or `open_shared`. The memory is freed when it has neither mapping nor descriptor."""
        where, size = ctypes.c_ulonglong(address), ctypes.c_size_t(size_bytes)
        self.call("MemUnmap", where, size)
        self.call("MemAddressFree", where, size)

    def captured(self, launch: Callable[[ctypes.c_void_p], object]) -> Callable[[], None]:
        """Capture what `launch` puts on the stream that it is given. The result replays it on the default stream.

        CUDA only. Raises DriverError.
        """
        if self.kind != "cuda":
            raise DriverError("only CUDA can capture graphs")
        stream, graph, ready = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("StreamCreate", ctypes.byref(stream), NON_BLOCKING)
        # Relaxed capture lets the candidate make calls, such as allocations, that the stricter modes reject.
        self.call("StreamBeginCapture", stream, RELAXED)
        launch(stream)
        self.call("StreamEndCapture", stream, ctypes.byref(graph))
        self.call("GraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        return lambda: self.call("GraphLaunch", ready, None)

    def event(self) -> Event:
        """Return a new event for the default stream."""
        return Event(self)


class Event:
    """Mark a point in the default stream, with the device's own time."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._handle = ctypes.c_void_p()
        driver.call("EventCreate", ctypes.byref(self._handle), 0)
        self._record, self._elapsed = driver.function("EventRecord"), driver.function("EventElapsedTime")
        self._wait = driver.function("EventSynchronize")

    def record(self) -> None:
        """Put the mark after everything that was enqueued on the default stream so far."""
        self._driver.check("EventRecord", self._record(self._handle, None))

    def wait(self) -> None:
        """Wait until the mark is reached."""
        self._driver.check("EventSynchronize", self._wait(self._handle))

    def nanoseconds_since(self, earlier: Event) -> int:
        """Return the device time in ns between two marks that have both been reached."""
        milliseconds = ctypes.c_float()
        # The driver's resolution is about half a microsecond (cuEventElapsedTime).
        code = self._elapsed(ctypes.byref(milliseconds), earlier._handle, self._handle)
        self._driver.check("EventElapsedTime", code)
        return round(milliseconds.value * 1e6)
