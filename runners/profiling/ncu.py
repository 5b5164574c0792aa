"""Read hardware counters of every kernel of a call with NVIDIA Nsight Compute (`ncu`).

It runs in the sandbox, around the candidate's own process. Its two halves talk through a UNIX socket in the sandbox's
private /tmp. Only what lies between cuProfilerStart and cuProfilerStop counts. Clocks stay as they are. Shares are
NVIDIA's "speed of light" percentages. Tried with ncu 2025.3 on an H100.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from runners.profiling.base import Launched, ProfilerError, Seen, number, rows
from runners.targets import Target

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DETAILS = {
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_active_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor_pipe_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
}
# Shared-memory wavefronts, and those of them that a bank conflict made necessary.
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
# Warps that wait for a reason, per issued instruction (Nsight Compute's section "Warp State Statistics").
STALLS = {
    reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in (
        *("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle"),
        *("math_pipe_throttle", "wait", "membar", "no_instruction"),
    )
}
MOST_STALLS = 3
METRICS = (*DETAILS.values(), CONFLICTS, WAVEFRONTS, *STALLS.values())
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
    # It replays each launch anyway. A second call would double what a reference of many launches takes (up to a
    # minute), and share the limit of launches with the first.
    calls = 1
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
        metrics = ",".join([TIME, COMPUTE, MEMORY, *METRICS])
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
    mean = {metric: _weighted(launches, metric, total_ns) for metric in (COMPUTE, MEMORY, *METRICS)}
    return Seen(
        name,
        -(-len(launches) // calls),
        total_ns / calls / 1e3,
        _share(mean[COMPUTE]),
        _share(mean[MEMORY]),
        {mine: value for mine, theirs in DETAILS.items() if (value := mean[theirs]) is not None}
        | _conflicts(mean)
        | _stalls(mean),
    )


def _conflicts(mean: Mapping[str, float | None]) -> dict[str, float]:
    """Return the share of shared-memory wavefronts that bank conflicts caused, where shared memory is used."""
    conflicts, wavefronts = mean[CONFLICTS], mean[WAVEFRONTS]
    return {} if conflicts is None or not wavefronts else {"bank_conflict_percent": 100 * conflicts / wavefronts}


def _stalls(mean: Mapping[str, float | None]) -> dict[str, float]:
    """Return the reasons for which most warps wait, as warps per issued instruction."""
    found = {reason: value for reason, metric in STALLS.items() if (value := mean[metric])}
    longest = sorted(found, key=lambda reason: -found[reason])[:MOST_STALLS]
    return {f"stalled_{reason}": found[reason] for reason in longest}


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _weighted(launches: list[dict[str, float]], metric: str, total_ns: float) -> float | None:
    if not total_ns or not all(metric in found for found in launches):
        return None
    return sum(found[metric] * found[TIME] for found in launches) / total_ns
