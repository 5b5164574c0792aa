"""Confine the processes that run problems' code: no network, no files but the interpreter's and ours, no writing.

KernelBench modules come from the internet. Their code makes inputs and computes what is expected, so it must not be
seen by a candidate, but it is no more trusted than one: it gets a sandbox of its own. Problems that ship with us share
one, whose process has imported torch already; every other problem has one to itself, so that its code cannot reach
the expectations of another problem.
"""

from __future__ import annotations

import os
from dataclasses import replace

from runners.harness.devices.capacity import standing
from runners.harness.devices.device import Device
from runners.harness.oracle.protocol import DEVICE_VARIABLE, FLUSH_VARIABLE, SCARCE_VARIABLE
from runners.harness.processes import compilers
from runners.harness.processes.participant import thread_count, thread_environment
from runners.harness.processes.work_queues import ONE_QUEUE
from runners.job import ProblemBundle
from runners.problems import is_shipped
from runners.sandbox import PACKAGE, ResourceLimits, SandboxPolicy, python_paths

# A worker lives for weeks, and its oracles with it; the referee ends them.
LIFE_S = 10 * 365 * 86_400.0
# References compute on whole problems with many threads, and what they print must not end them.
PROCESSES, OPEN_FILES, UNBOUNDED_BYTES = 8192, 4096, 1 << 50
# Has torch's allocator grow its blocks, so that intermediate results of many sizes leave no gaps. Of 17 GiB that a
# transposed convolution took on an H100, it spared two.
TIGHT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
# Often enough to notice a reference that takes all memory, and too rarely to disturb what is timed beside it.
SAMPLE_S = 0.5


def shares_process(bundle: ProblemBundle) -> bool:
    """Return whether a problem's oracle may be forked from the process that others are forked from."""
    return is_shipped(bundle)


def oracle_policy(device: Device) -> SandboxPolicy:
    """Return what an oracle's process may see and use."""
    environment = {**thread_environment(thread_count()), **compilers.environment(device), **device.environment}
    if device.kind != "cpu":
        environment |= {DEVICE_VARIABLE: device.kind, FLUSH_VARIABLE: str(device.flush_bytes)}
    if device.kind == "cuda":
        # Also for references that use several streams, since nothing is timed here.
        environment |= ONE_QUEUE
        if standing(device).is_scarce:
            environment |= {SCARCE_VARIABLE: "1", **TIGHT}
    limits = replace(
        ResourceLimits(**device.limits),
        wall_s=LIFE_S,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        processes=PROCESSES,
        open_files=OPEN_FILES,
        file_bytes=UNBOUNDED_BYTES,
        output_bytes=UNBOUNDED_BYTES,
    )
    paths = (*python_paths(), PACKAGE, *compilers.read_only(device))
    return SandboxPolicy(
        paths, env=environment, devices=device.sandbox, device_node=device.node, limits=limits, sample_s=SAMPLE_S
    )
