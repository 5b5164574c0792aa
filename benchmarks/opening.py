"""Measure how long processes take to open a GPU and to end, alone and beside others that have opened it.

    python benchmarks/opening.py

Each process is forked, initialises NVIDIA's driver and makes the primary context of device 0, as torch does. A context
has CUDA_DEVICE_MAX_CONNECTIONS work queues, 8 by default. Needs an NVIDIA GPU that nobody else uses, and nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
USUAL = 8
DRIVER = "libcuda.so.1"
SECONDS = struct.Struct("d")
# prctl(2): nothing stays on the device when this program is ended.
PR_SET_PDEATHSIG = 1


@dataclass
class Opened:
    """Control a forked process that has the device open, until `end`.

    `context_s` are the seconds that the context took, `seconds` those from the fork on.
    """

    pid: int
    report: int
    started: float
    context_s: float = 0.0
    seconds: float = 0.0

    def wait(self) -> Opened:
        """Wait until the device is open. Raises OSError if the process could not open it."""
        told = os.read(self.report, SECONDS.size)
        self.seconds = time.monotonic() - self.started
        if len(told) < SECONDS.size:
            raise OSError("a process could not open the device")
        (self.context_s,) = SECONDS.unpack(told)
        return self

    def end(self) -> float:
        """End the process and return the seconds that took."""
        started = time.monotonic()
        end_all([self])
        return time.monotonic() - started


def begun(queues: int) -> Opened:
    """Fork a process that opens the device, without waiting for it."""
    report, told = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.write(told, SECONDS.pack(open_device(queues)))
            signal.pause()
        except OSError as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(1)
    os.close(told)
    return Opened(pid, report, started)


def end_all(processes: Sequence[Opened]) -> None:
    """End processes at the same time, and wait for them."""
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    for process in processes:
        os.waitpid(process.pid, 0)
        os.close(process.report)


def open_device(queues: int) -> float:
    """Open the device in this process, and return the seconds that its context took. Raises OSError."""
    os.environ[QUEUES] = str(queues)
    driver, context = ctypes.CDLL(DRIVER), ctypes.c_void_p()
    if error := driver.cuInit(0):
        raise OSError(f"cuInit failed with error {error}")
    started = time.monotonic()
    if error := driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        raise OSError(f"cuDevicePrimaryCtxRetain failed with error {error}")
    return time.monotonic() - started


@contextmanager
def standing(count: int) -> Iterator[None]:
    """Have so many other processes hold the device open."""
    others = [begun(USUAL).wait() for _ in range(count)]
    try:
        yield
    finally:
        end_all(others)


def one_by_one(queues: int, repeat: int) -> str:
    """Open and end processes one after the other, and return the medians in words."""
    opened, ends = [], []
    for _ in range(repeat):
        process = begun(queues).wait()
        opened.append(process)
        ends.append(process.end())
    context = median(process.context_s for process in opened)
    whole = median(process.seconds for process in opened)
    return f"context {context:.3f} s, from the fork {whole:.3f} s, end {median(ends):.3f} s"


def at_once(count: int) -> str:
    """Open the device in several processes at the same time, and return the seconds in words."""
    started = time.monotonic()
    processes = [process.wait() for process in [begun(USUAL) for _ in range(count)]]
    whole = time.monotonic() - started
    ended = time.monotonic()
    end_all(processes)
    return f"all open after {whole:.3f} s, all ended after {time.monotonic() - ended:.3f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each circumstance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--others", type=int, nargs="+", default=[0, 1, 14])
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 2, 4, 8, 32])
    chosen = parser.parse_args(arguments)
    for count in chosen.others:
        with standing(count):
            print(f"beside {count:2} others, {USUAL:2} queues: {one_by_one(USUAL, chosen.repeat)}", flush=True)
    most = max(chosen.others)
    with standing(most):
        for queues in chosen.queues:
            print(f"beside {most:2} others, {queues:2} queues: {one_by_one(queues, chosen.repeat)}", flush=True)
        for count in (2, 6):
            print(f"beside {most:2} others, {count} at once: {at_once(count)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
