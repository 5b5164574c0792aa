"""Read hardware counters of every kernel dispatch with AMD's `rocprofv3`.

Written from ROCprofiler-SDK's documentation (7.0) and the CSV layout shown there; **untested on AMD hardware**.

Counters that share a hardware block do not fit into one pass, so the process is started once for each group, which is
how rocprof-compute drives the same tool. rocprof-compute itself runs an application at least thirteen times and needs
a command that computes by itself, whereas a candidate here answers a referee; its figures come from these counters.

`FETCH_SIZE` and `WRITE_SIZE` are KiB moved between the second-level cache and memory, `VALUBusy`, `MfmaUtil` and
`OccupancyPercent` percentages (MI300 and MI200 series performance counters and metrics, ROCm documentation).
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runners.profiling.base import Launched, ProfilerError, Seen, number, rows
from runners.targets import Target, ceilings

GROUPS = (("FETCH_SIZE", "VALUBusy"), ("WRITE_SIZE", "MfmaUtil"), ("OccupancyPercent",))
PERCENTAGES = {"valu_busy_percent": "VALUBusy", "mfma_percent": "MfmaUtil", "occupancy_percent": "OccupancyPercent"}
# Copies and fills of the runtime's own.
RUNTIME_PREFIX = "__amd_rocclr_"
PROGRAM = """
out=$TMPDIR/rocprofv3; tool=$1; counters=$2; shift 2
"$tool" --pmc $counters --output-format csv -d "$out" -o seen -- "$@"
find "$out" -name '*counter_collection.csv' -exec cat {} +
"""


@dataclass
class Dispatches:
    """Add up all dispatches of one kernel: their number and ns by pass, and counters weighted by ns."""

    count: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    total_ns: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    passes: dict[str, int] = field(default_factory=dict)


class Rocprofv3(Launched):
    """Drive ROCprofiler-SDK's command line."""

    name = "rocprofv3"
    passes = len(GROUPS)

    def __init__(self) -> None:
        self._path = shutil.which("rocprofv3") or shutil.which("rocprofv3", path="/opt/rocm/bin")
        self.shown = tuple(path for path in [Path("/opt/rocm")] if path.exists())

    def missing(self) -> str:
        """Return a text if it is not installed."""
        return "" if self._path else "rocprofv3 is not installed: rocprofiler-sdk of ROCm 6.2 or newer"

    def around(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return a shell command that prints the tables, which the tool writes to files in the scratch directory."""
        tool = self._path or self.name
        return ["/bin/sh", "-c", PROGRAM, "rocprofv3", tool, " ".join(GROUPS[number]), *argv]

    def read(self, outputs: Sequence[str], calls: int, target: Target) -> list[Seen]:
        """Parse a long table with one row for each dispatch and counter. Raises ProfilerError.

        Kernels with fewer dispatches than there were calls are those that a library starts with, and are left out.
        """
        found: dict[str, Dispatches] = defaultdict(Dispatches)
        for number_of_pass, output in enumerate(outputs):
            for row in rows(output, "Correlation_Id"):
                _add(found[row.get("Kernel_Name", "")], row, number_of_pass)
        seen = [
            _kernel(name, kernel, calls, target) for name, kernel in found.items() if _counts(name, kernel, calls)
        ]
        if not seen:
            raise ProfilerError("rocprofv3 saw no kernel, or does not know a counter of the group")
        return seen


def _add(kernel: Dispatches, row: dict[str, str], number_of_pass: int) -> None:
    begin, end, value = (number(row.get(name)) for name in ("Start_Timestamp", "End_Timestamp", "Counter_Value"))
    counter = row.get("Counter_Name", "")
    if begin is None or end is None or value is None or end <= begin:
        return
    kernel.passes.setdefault(counter, number_of_pass)
    if counter == next(name for name, first in kernel.passes.items() if first == number_of_pass):
        kernel.count[number_of_pass] += 1
        kernel.total_ns[number_of_pass] += end - begin
    kernel.sums[counter] += value * (end - begin if counter in PERCENTAGES.values() else 1)


def _counts(name: str, kernel: Dispatches, calls: int) -> bool:
    return not name.startswith(RUNTIME_PREFIX) and max(kernel.count.values(), default=0) >= calls


def _kernel(name: str, kernel: Dispatches, calls: int, target: Target) -> Seen:
    """Combine the dispatches of a kernel, with times from the first pass.

    The warm-up before the calls adds one dispatch of each launch.
    """
    first = min(kernel.count)
    launches = max(1, kernel.count[first] // calls)
    time_us = kernel.total_ns[first] / kernel.count[first] * launches / 1e3
    percent = {mine: _mean(kernel, theirs) for mine, theirs in PERCENTAGES.items()}
    known = {mine: value for mine, value in percent.items() if value is not None}
    busy = [known[mine] for mine in ("valu_busy_percent", "mfma_percent") if mine in known]
    return Seen(name, launches, time_us, max(busy) / 100 if busy else None, _memory_share(kernel, target), known)


def _mean(kernel: Dispatches, counter: str) -> float | None:
    if counter not in kernel.passes:
        return None
    return kernel.sums[counter] / kernel.total_ns[kernel.passes[counter]]


def _memory_share(kernel: Dispatches, target: Target) -> float | None:
    """Return the bytes per second between cache and memory over what a copy reaches, or else the data sheet's
    bandwidth."""
    bandwidth = ceilings(target.key).copy_bandwidth or target.bandwidth
    moved = [name for name in ("FETCH_SIZE", "WRITE_SIZE") if name in kernel.passes]
    if len(moved) < 2 or not bandwidth:
        return None
    return sum(kernel.sums[name] * 1024 / kernel.total_ns[kernel.passes[name]] * 1e9 for name in moved) / bandwidth
