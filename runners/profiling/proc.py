"""Count what Linux itself counts of a candidate on a CPU: processor time, page faults, context switches.

Needs no tool and no right that a parent does not have over its processes, so it is what is left where perf is missing
or not permitted. Page faults tell of memory that is allocated in every call, processor time of threads that wait.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runners.profiling.base import WHOLE_PROCESS, Attached, ProfilerError, Seen
from runners.targets import Target

PROC = Path("/proc")
# Positions in /proc/PID/stat after the process's name, which may contain spaces (proc(5)).
_MINOR_FAULTS, _MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS = 7, 9, 11, 12


class Proc(Attached):
    """Read /proc before and after."""

    name = "proc"

    def missing(self) -> str:
        """Return why it cannot be used here; an empty string if it can."""
        return "" if (PROC / "self" / "stat").exists() else "there is no /proc"

    @contextmanager
    def counting(self, pids: Sequence[int]) -> Iterator[list[str]]:
        """Print the differences as JSON. Raises ProfilerError when the processes are gone."""
        printed: list[str] = []
        before, started = counts(pids), time.monotonic()
        yield printed
        elapsed_s, after = time.monotonic() - started, counts(pids)
        found = {name: after[name] - before[name] for name in before}
        printed.append(json.dumps({**found, "elapsed_s": elapsed_s}))

    def read(self, outputs: Sequence[str], calls: int, target: Target) -> list[Seen]:
        """Return one entry for the whole process. Shares of the ceilings need hardware counters."""
        counted = json.loads(outputs[0])
        processor_s = counted["user_s"] + counted["system_s"]
        if counted["elapsed_s"] <= 0 or processor_s <= 0:
            raise ProfilerError("too short to be counted")
        details = {
            "cores_busy": processor_s / counted["elapsed_s"],
            "system_percent": 100 * counted["system_s"] / processor_s,
            "page_faults_a_call": counted["page_faults"] / calls,
            "major_faults_a_call": counted["major_faults"] / calls,
            "context_switches_a_call": counted["context_switches"] / calls,
        }
        return [Seen(WHOLE_PROCESS, 1, counted["elapsed_s"] / calls * 1e6, None, None, details)]


def counts(pids: Sequence[int]) -> dict[str, float]:
    """Return the sums over all threads of the processes. Raises ProfilerError when one cannot be read."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    total = dict.fromkeys(("user_s", "system_s", "page_faults", "major_faults", "context_switches"), 0.0)
    try:
        for pid in pids:
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            total["user_s"] += int(fields[_USER_TICKS]) * tick_s
            total["system_s"] += int(fields[_SYSTEM_TICKS]) * tick_s
            total["page_faults"] += int(fields[_MINOR_FAULTS]) + int(fields[_MAJOR_FAULTS])
            total["major_faults"] += int(fields[_MAJOR_FAULTS])
            total["context_switches"] += sum(map(_switches, (PROC / str(pid) / "task").iterdir()))
    except (OSError, ValueError, IndexError) as error:
        raise ProfilerError(f"the process cannot be counted: {type(error).__name__}") from error
    return total


def _switches(task: Path) -> int:
    lines = (task / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches:" in line)
