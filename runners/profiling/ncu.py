"""Read hardware counters of every kernel of a call with NVIDIA Nsight Compute (`ncu`).

It runs in the sandbox, around the candidate's own process. Its two halves talk through a UNIX socket in the sandbox's
private /tmp. Only what lies between cuProfilerStart and cuProfilerStop counts. Clocks stay as they are. Shares are
NVIDIA's "speed of light" percentages. Tried with ncu 2025.3 on an H100.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from runners.profiling.base import Launched, ProfilerError, Seen, number, rows
from runners.targets import Target

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DETAILS = {
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_active_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
# Each launch is replayed once for each group of counters.
MOST_LAUNCHES = 64
REFUSED = "ERR_NVGPUCTRPERM"
NOT_PERMITTED = (
    "the driver keeps counters for administrators: NVreg_RestrictProfilingToAdminUsers=0 for its kernel module"
)
PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")


class Ncu(Launched):
    """Drive Nsight Compute's command line."""

    name = "ncu"
    local_sockets = True

    def __init__(self) -> None:
        self._path = shutil.which("ncu") or shutil.which("ncu", path=PLACES[0])
        self.shown = tuple(place for place in [Path(PLACES[1])] if place.exists())

    def missing(self) -> str:
        """Return a text if it is not installed. Whether counters are permitted shows only when it runs."""
        return "" if self._path else "ncu is not installed: Nsight Compute of the CUDA toolkit"

    def around(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return the command of the only pass, since ncu itself replays each kernel for counters that do not fit
        together."""
        metrics = ",".join([TIME, COMPUTE, MEMORY, *DETAILS.values()])
        options = ["--csv", "--page", "details", "--print-units", "base", "--profile-from-start", "off"]
        # Locked clocks would need privileges, and times would no longer match the timing stage.
        options += ["--clock-control", "none", "--target-processes", "application-only"]
        options += ["--launch-count", str(MOST_LAUNCHES), "--metrics", metrics]
        return [self._path or self.name, *options, *argv]

    def read(self, outputs: Sequence[str], calls: int, target: Target) -> list[Seen]:
        """Parse a table with one row for each launch and metric. Raises ProfilerError."""
        if REFUSED in outputs[0]:
            raise ProfilerError(NOT_PERMITTED)
        launches: dict[str, dict[str, float]] = defaultdict(dict)
        names: dict[str, str] = {}
        for row in rows(outputs[0], "ID"):
            names[row["ID"]] = row.get("Kernel Name", "")
            if (value := number(row.get("Metric Value"))) is not None:
                launches[row["ID"]][row.get("Metric Name", "")] = value
        measured = [(names[key], found) for key, found in launches.items() if TIME in found]
        if not measured:
            raise ProfilerError("ncu saw no kernel")
        return [
            _kernel(name, [found for other, found in measured if other == name], calls)
            for name in dict.fromkeys(name for name, _ in measured)
        ]


def _kernel(name: str, launches: list[dict[str, float]], calls: int) -> Seen:
    """Combine all launches of a kernel; shares are weighted by time."""
    total_ns = sum(found[TIME] for found in launches)
    mean = {metric: _weighted(launches, metric, total_ns) for metric in (COMPUTE, MEMORY, *DETAILS.values())}
    return Seen(
        name,
        -(-len(launches) // calls),
        total_ns / calls / 1e3,
        _share(mean[COMPUTE]),
        _share(mean[MEMORY]),
        {mine: value for mine, theirs in DETAILS.items() if (value := mean[theirs]) is not None},
    )


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _weighted(launches: list[dict[str, float]], metric: str, total_ns: float) -> float | None:
    if not total_ns or not all(metric in found for found in launches):
        return None
    return sum(found[metric] * found[TIME] for found in launches) / total_ns
