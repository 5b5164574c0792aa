"""Hold the device until the referee opens a gate, so that a whole call is enqueued before any of it runs.

The time between two events around the call is then device time alone, however slowly the host enqueues (the method of
NVBench's blocking kernel). The gate is one word of memory that this process, the referee and the device share: the
device waits while it is 0, and the referee writes 1.

On CUDA a kernel fills every thread slot of the device while it waits. It holds back work on *any* stream of this
process, not only on the default stream, so that nothing can finish before the first event. On HIP the default stream
waits for the word (`hipStreamWaitValue32`); other streams are not held there, and it is untested on AMD hardware.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from .driver import Driver, DriverError

# One page, because the driver registers memory by pages.
GATE_BYTES = 4096
# CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP.
REGISTER_PORTABLE_MAPPED = 3
# Numbers of device attributes, and how many blocks share a multiprocessor.
SIMULTANEOUS, THREADS_PER_BLOCK, MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR = 2, 1, 16, 39
WAIT_UNTIL_AT_LEAST, WHOLE_WORD = 0, 0xFFFFFFFF

# One thread of each block polls; the others wait at the barrier and keep their slots. The wait ends by itself after
# `limit` nanoseconds, so that a device is not held for ever when the referee is killed.
HOLD_PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 word, .param .u64 limit)
{
  .reg .pred %p<4>;
  .reg .u32 %r<3>;
  .reg .u64 %d<6>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra TOGETHER;
  ld.param.u64 %d1, [word];
  ld.param.u64 %d2, [limit];
  mov.u64 %d3, %globaltimer;
  add.u64 %d3, %d3, %d2;
AGAIN:
  ld.relaxed.sys.global.u32 %r2, [%d1];
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra TOGETHER;
  mov.u64 %d4, %globaltimer;
  setp.ge.u64 %p3, %d4, %d3;
  @%p3 bra TOGETHER;
  nanosleep.u32 100;
  bra AGAIN;
TOGETHER:
  bar.sync 0;
  ret;
}
\0"""
# Longer than any patience of the referee, so that a gate opens by itself only after the referee is gone.
LIMIT_NS = 20_000_000_000


class Gate:
    """Operate the device's side of the gate. `memory` is shared with the referee."""

    def __init__(self, driver: Driver, memory: mmap.mmap) -> None:
        self._driver, self._memory = driver, memory
        self._word = ctypes.c_uint32.from_buffer(memory)
        host = ctypes.c_void_p(ctypes.addressof(self._word))
        driver.call("MemHostRegister", host, ctypes.c_size_t(GATE_BYTES), REGISTER_PORTABLE_MAPPED)
        seen_by_device = ctypes.c_uint64()
        driver.call("MemHostGetDevicePointer", ctypes.byref(seen_by_device), host, 0)
        self._address = seen_by_device
        self._launch = self._kernel() if driver.kind == "cuda" else self._stream_wait()

    def shut(self) -> None:
        """Hold what is enqueued from now on until the referee opens the gate."""
        self._word.value = 0
        self._launch()

    def _kernel(self) -> Any:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver.call("ModuleLoadData", ctypes.byref(module), HOLD_PTX)
        self._driver.call("ModuleGetFunction", ctypes.byref(function), module, b"hold")
        blocks, threads = self._whole_device()
        limit = ctypes.c_uint64(LIMIT_NS)
        values = (self._address, limit)
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        launch, check = self._driver.function("LaunchKernel"), self._driver.check

        # The launch reads its parameters through pointers, so the objects behind them must live as long as the
        # function.
        def hold(_kept_alive: Any = values) -> None:
            check("LaunchKernel", launch(function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None))

        return hold

    def _whole_device(self) -> tuple[int, int]:
        """Return the blocks, and threads per block, that leave no multiprocessor a free thread slot."""
        slots = self._driver.attribute(THREADS_PER_MULTIPROCESSOR)
        threads = min(self._driver.attribute(THREADS_PER_BLOCK), slots // SIMULTANEOUS)
        return self._driver.attribute(MULTIPROCESSORS) * (slots // threads), threads

    def _stream_wait(self) -> Any:
        wait, check = self._driver.function("StreamWaitValue32"), self._driver.check

        def hold() -> None:
            check("StreamWaitValue32", wait(None, self._address, 1, WAIT_UNTIL_AT_LEAST, WHOLE_WORD))

        return hold


def gate_on(driver: Driver, descriptor: int) -> Gate | None:
    """Return the gate on shared memory, or None if the driver cannot map it; calls are then timed without it."""
    memory = mmap.mmap(descriptor, GATE_BYTES)
    try:
        return Gate(driver, memory)
    except DriverError:
        return None
