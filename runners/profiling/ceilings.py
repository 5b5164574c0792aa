"""Measure what a large copy, a large read and square matrix products reach: `ceilings.py DEVICE DTYPE…` prints JSON.

The figures are medians of several runs on random data, since some devices multiply zeros faster.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

# Larger than the caches of common devices.
COPY_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
SIDE = {"cpu": 1024, "cuda": 8192}
REPEATS = 11


def main(device: str, *dtypes: str) -> None:
    """Print `{"copy_bandwidth": …, "read_bandwidth": …, "matmul_flops": {…}}`."""
    source = torch.randint(0, 255, (COPY_BYTES[device],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * COPY_BYTES[device] / seconds(lambda: target.copy_(source), device)
    # A stream that only reads is up to 15 % faster than a copy where memory has to turn around for writing.
    read = COPY_BYTES[device] / seconds(source.view(torch.float32).nan_to_num_().amax, device)
    rates = {dtype: product_rate(device, getattr(torch, dtype)) for dtype in dtypes}
    print(json.dumps({"copy_bandwidth": copied, "read_bandwidth": read, "matmul_flops": rates}))


def product_rate(device: str, dtype: torch.dtype) -> float:
    """Return the FLOP per second of a square matrix product."""
    # Double precision is up to 64 times slower on some GPUs.
    side = SIDE[device] // (2 if dtype is torch.float64 else 1)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds(lambda: left @ right, device)


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the median time of a call in s, after two calls that warm up."""
    times = []
    for _ in range(REPEATS + 2):
        settle(device)
        started = time.perf_counter()
        work()
        settle(device)
        times.append(time.perf_counter() - started)
    return median(times[2:])


def settle(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
