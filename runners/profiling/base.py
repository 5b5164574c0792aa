"""Define what all profilers have in common: how one is started, and one form for what it saw.

A profiler either runs a process (`Launched`: ncu, rocprofv3) or counts one from outside (`Attached`: perf). Its
output was printed beside, or by, a hostile process: it is parsed strictly and bounded, and no verdict rests on it.
"""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.targets import Target

# Below a third of both ceilings, neither explains the time.
LATENCY_SHARE = 1 / 3
MOST_KERNELS = 8
NAME_CHARS = 160
# The name in place of a kernel's, where a tool counts a process and does not tell its functions apart.
WHOLE_PROCESS = "the whole process"


class ProfilerError(Exception):
    """Report that the tool is absent, is not permitted, or saw nothing. The message says which."""


@dataclass(frozen=True)
class Seen:
    """Describe one kernel (on a CPU: the function) as a profiler saw it.

    `launches` and `time_us` are per call. The shares of the ceilings lie between 0 and 1, and are None if the tool
    does not tell them. `details` holds figures of the tool's own.
    """

    name: str
    launches: int
    time_us: float
    compute_share: float | None = None
    memory_share: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)


class Profiler(ABC):
    """Drive one tool. `shown` are the paths that it needs inside the sandbox."""

    name: str
    shown: tuple[Path, ...] = ()

    @abstractmethod
    def missing(self) -> str:
        """Return why the tool can't be used on this machine, or an empty text if it can."""

    @abstractmethod
    def read(self, outputs: Sequence[str], calls: int, target: Target) -> list[Seen]:
        """Parse what the tool printed of `calls` calls of a kernel. Raises ProfilerError."""


class Launched(Profiler):
    """Drive a tool that runs the process itself, `passes` times if its counters do not fit into one.

    Each pass sees `calls` calls of the kernel. `local_sockets` says that the tool's parts talk through UNIX sockets.
    """

    passes = 1
    calls = 3
    local_sockets = False

    @abstractmethod
    def around(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` under the tool in pass `number`; results go to standard output."""


class Attached(Profiler):
    """Drive a tool that counts running processes from outside."""

    @abstractmethod
    def counting(self, pids: Sequence[int]) -> AbstractContextManager[list[str]]:
        """Count those processes and all their threads. The list holds what the tool printed afterwards. Raises
        ProfilerError."""


def bound_by(compute_share: float, memory_share: float) -> str:
    """Return `compute`, `memory`, or `latency` if neither ceiling is reached by a third.

    Latency means too little work in flight, launches, or work that the counts do not include (Williams, Waterman,
    Patterson, "Roofline", CACM 2009).
    """
    if max(compute_share, memory_share) < LATENCY_SHARE:
        return "latency"
    return "compute" if compute_share > memory_share else "memory"


def normalised(tool: str, seen: Sequence[Seen]) -> dict[str, Any]:
    """Return `{"tool", "top": [...], "bound"}` with the kernels by time, longest first.

    The bound is that of the first kernel, if the tool tells shares.
    """
    kernels = [_plain(one) for one in sorted(seen, key=lambda one: -one.time_us)[:MOST_KERNELS]]
    bound = {"bound": kernels[0]["bound"]} if kernels and "bound" in kernels[0] else {}
    return {"tool": tool, "top": kernels, **bound}


def _plain(seen: Seen) -> dict[str, Any]:
    kernel: dict[str, Any] = {
        "name": seen.name[:NAME_CHARS],
        "launches": seen.launches,
        "time_us": round(seen.time_us, 3),
    }
    if seen.compute_share is not None and seen.memory_share is not None:
        shares = (min(1.0, seen.compute_share), min(1.0, seen.memory_share))
        kernel |= {"compute_share": round(shares[0], 4), "memory_share": round(shares[1], 4)}
        kernel["bound"] = bound_by(*shares)
    if seen.details:
        kernel["details"] = {name: float(f"{value:.4g}") for name, value in seen.details.items()}
    return kernel


def number(text: str | None) -> float | None:
    """Parse a figure of a table, with or without commas between thousands; None for anything else, such as `n/a`."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def rows(output: str, first_column: str) -> Iterable[dict[str, str]]:
    """Yield the rows of every quoted CSV table in an output whose header begins with that column.

    All other lines are what the tool, or the profiled program, printed in between.
    """
    header: list[str] = []
    for line in output.splitlines():
        # Quoted cells or numbers: everything else was printed by the profiled program.
        if not line.startswith(('"', *"0123456789")):
            continue
        cells = next(csv.reader([line], strict=False), [])
        if cells and cells[0] == first_column:
            header = cells
        elif header and len(cells) == len(header):
            yield dict(zip(header, cells, strict=True))
