"""Rank what a program calls by its share of the time, and choose what is worth a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runners.capture.calls import NO_INPUT, NOTHING, Call

# Less than this share of a program is not worth a kernel: Amdahl's law leaves a hundredth of a gain.
LEAST_SHARE = 0.01


@dataclass
class Row:
    """Hold the calls of one operator or module class that could become one problem, and their share of the time."""

    calls: list[Call]
    share: float

    @property
    def title(self) -> str:
        """Return the operator's name or the module's class."""
        return self.calls[0].title

    @property
    def kind(self) -> str:
        """Return `operator` or `module`."""
        return self.calls[0].kind

    @property
    def count(self) -> int:
        """Return the number of calls."""
        return sum(call.count for call in self.calls)

    @property
    def seconds(self) -> float:
        """Return the time that they took together."""
        return sum(call.seconds for call in self.calls)

    @property
    def bound(self) -> float:
        """Return the speedup of the whole program if these calls took no time at all (Amdahl 1967)."""
        return 1 / (1 - min(self.share, 0.9999))

    @property
    def obstacle(self) -> str:
        """Return why no problem can be made of it: what stands against every call."""
        return self.calls[0].obstacle if all(call.obstacle for call in self.calls) else ""

    def overlaps(self, other: Row) -> bool:
        """Return whether one of the two runs inside the other, so that both kernels would not add up."""
        return _inside(self, other) or _inside(other, self)


def ranked(calls: Iterable[Call], seconds: float) -> list[Row]:
    """Return rows by falling share. Calls that return no tensor are left out: they compute nothing."""
    groups: dict[Any, list[Call]] = {}
    for call in calls:
        if call.obstacle not in (NOTHING, NO_INPUT) and call.count:
            groups.setdefault((*call.family, bool(call.obstacle)), []).append(call)
    rows = [Row(sorted(many, key=lambda call: -call.seconds), 0.0) for many in groups.values()]
    for row in rows:
        row.share = min(row.seconds / seconds, 1.0) if seconds > 0 else 0.0
    return sorted(rows, key=lambda row: -row.share)


def table(rows: list[Row], seconds: float, most: int = 20) -> str:
    """Return the ranking for people, one line for each row that matters."""
    lines = [f"{seconds:.3f} s from the first module to the end, calls timed one by one", ""]
    lines.append(f"{'#':>3} {'share':>6} {'at most':>8} {'calls':>7} {'each':>10}  what")
    for number, row in enumerate(rows[:most], 1):
        each = 1e6 * row.seconds / row.count
        # The whole program can't be free.
        bound = f"{row.bound:>7.2f}×" if row.share < 0.999 else f"{'–':>8}"
        lines.append(
            f"{number:>3} {row.share:>6.1%} {bound} {row.count:>7} {each:>7.0f} µs  {row.kind} {row.title}"
            f"{_shapes(row)}{f' — {row.obstacle}' if row.obstacle else ''}"
        )
    lines += ["", "at most: how much faster the program would be end to end if these calls were free"]
    return "\n".join(lines)


def _shapes(row: Row) -> str:
    if not row.calls[0].inputs:
        return ""
    first = row.calls[0].inputs[0]
    shapes = f" {first.dtype} {'×'.join(map(str, first.shape))}"
    return shapes + (f" and {len(row.calls) - 1} more" if len(row.calls) > 1 else "")


def _inside(inner: Row, outer: Row) -> bool:
    outside = {id(call) for call in outer.calls}
    return any(call.inside & outside for call in inner.calls)
