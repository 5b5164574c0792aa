"""Profile one call on a GPU after timing: replayed from a graph, or under torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .device_clock import DeviceClock

REPLAYS = 9
ENOUGH_NS = 500_000_000
PROFILED_CALLS = 3


def replays_ns(replay: Callable[[], Any], device_clock: DeviceClock) -> list[int]:
    """Return the device times in ns of some replays, after one that warms up: fewer if they take half a second."""
    replay()
    times: list[int] = []
    while len(times) < REPLAYS and sum(times) < ENOUGH_NS:
        times.append(device_clock.time(replay, ())[0])
    return times


def torch_graph(call: Callable[[], Any]) -> Callable[[], Any]:
    """Capture the call with torch. Raises what forbids it."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Callable[[], Any] = graph.replay
    return replay


def repeat(call: Callable[[], Any], count: int, device_clock: DeviceClock) -> None:
    """Make `count` calls between the marks that a profiler looks for, and nothing else on the device between them."""
    driver = device_clock.driver
    # Work that was enqueued before must not count.
    driver.synchronize()
    driver.mark_profile("Start")
    for _ in range(count):
        call()
    driver.synchronize()
    driver.mark_profile("Stop")


def kernels(call: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """Return name, launches per call and µs per call of every kernel, the longest first."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED_CALLS):
            call()
        torch.cuda.synchronize()
    found = [
        (str(item.key), -(-item.count // PROFILED_CALLS), float(item.self_device_time_total) / PROFILED_CALLS)
        for item in seen.key_averages()
        if item.self_device_time_total > 0
    ]
    return sorted(found, key=lambda kernel: -kernel[2])[:32]
