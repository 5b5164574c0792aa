"""Report what a performance comes to, in words and figures."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.chaos.faults import receipts

_RECEIPT = re.compile(rb"under fence \d+: \w+, (refused|repeated)")


class Recovery(NamedTuple):
    """Hold the seconds from a fault to the end of all jobs that it found under way, and the last of them in words."""

    seconds: float
    last: str


@dataclass
class Report:
    """Hold the figures of one performance."""

    provenance: str
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: list[Recovery] = field(default_factory=list)
    resumed: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    by_workers: Counter[str] = field(default_factory=Counter)
    claimed_again: int = 0
    runs: int = 0
    lost: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def holds(self, jobs: int, faults: int) -> bool:
        """Return whether every invariant holds and as much was done as was asked for."""
        enough = sum(self.jobs.values()) >= jobs and sum(self.faults.values()) >= faults
        return enough and not self.lost and not any(self.broken.values())

    def text(self) -> str:
        """Return the report as text."""
        return "\n".join(
            [self.provenance, "", *self._figures(), *self._waits(), "", *self._faults(), "", *self._invariants()]
        )

    def _figures(self) -> list[str]:
        rows = {
            "runs": f"{self.runs}, {self.resumed} times resumed after failures of infrastructure",
            "jobs": f"{sum(self.jobs.values())}: {_listed(self.jobs)}",
            "claimed more than once": self.claimed_again,
            "questions to models": f"{sum(self.calls.values())}: {_listed(self.calls)}",
            "faults": sum(self.faults.values()),
            "results refused": f"{self.by_workers['refused']} of workers, {receipts['refused']} injected",
            "results repeated": f"{self.by_workers['repeated']} of workers, {receipts['repeated']} injected",
            "recovery p50 / p95, s": self._recovery(),
            "lost": self.lost,
        }
        return [f"{name:<24} {value}" for name, value in rows.items()]

    def _recovery(self) -> str:
        if len(self.recoveries) < 2:
            return "too few to say"
        cuts = statistics.quantiles([recovery.seconds for recovery in self.recoveries], n=20)
        return f"{cuts[9]:.1f} / {cuts[18]:.1f} (of {len(self.recoveries)} faults that met jobs under way)"

    def _waits(self) -> list[str]:
        """Return recoveries by the job that was waited for longest, the slowest kind first."""
        kinds: dict[str, list[float]] = defaultdict(list)
        for recovery in self.recoveries:
            kinds[recovery.last].append(recovery.seconds)
        rows = sorted(((max(times), statistics.median(times), len(times), last) for last, times in kinds.items()),
                      reverse=True)  # fmt: skip
        return [f"    longest {most:5.1f} s, median {middle:5.1f} s of {count:>3}  {last}"
                for most, middle, count, last in rows]  # fmt: skip

    def _faults(self) -> list[str]:
        rows = [f"{count:>5}  {name}" for name, count in sorted(self.faults.items())]
        return rows + [f"    –  {name} (met nothing)" for name in self.left_out]

    def _invariants(self) -> list[str]:
        rows = []
        for name, wrong in self.broken.items():
            rows.append(f"{'BROKEN' if wrong else 'holds':<7} {name}")
            rows += [f"          {line}" for line in wrong[:10]]
        return rows


def receipts_in(folder: Path) -> Counter[str]:
    """Count from the workers' logs what they were answered to results that came late or twice."""
    return Counter(word.decode() for path in folder.glob("*.log*") for word in _RECEIPT.findall(path.read_bytes()))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
