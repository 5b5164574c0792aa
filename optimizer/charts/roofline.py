"""Draw a kernel under its target's roofs: work per byte moved against work per second.

The model is Williams, Waterman, Patterson, "Roofline", CACM 2009. FLOPs and bytes are those that the problem
declares, not those that the kernel executes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.charts.axis import logarithmic
from runners.job import CaseResult
from runners.problems.base import Problem, Purpose, Work
from runners.targets import FACTOR_DTYPES, Ceilings, Target

# Factor by which the roofs extend beyond the points on either side.
ROOM = 4.0
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Position:
    """Hold one timed case: its work (`flops`, `moved_bytes`), the dtype of most of its arithmetic, and its time.

    `roof_us` is the least time under the target's roofs, or None where they are unknown.
    """

    case: str
    flops: float
    moved_bytes: float
    dtype: str
    time_us: float
    roof_us: float | None

    @property
    def intensity(self) -> float:
        """Return the FLOP per byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def flops_per_s(self) -> float:
        """Return the achieved rate of arithmetic."""
        return self.flops / self.time_us * 1e6

    @property
    def bytes_per_s(self) -> float:
        """Return the achieved bandwidth."""
        return self.moved_bytes / self.time_us * 1e6

    @property
    def share(self) -> float | None:
        """Return the share of the roof that was reached, in per cent."""
        return None if self.roof_us is None else 100 * self.roof_us / self.time_us


def positions(problem: Problem, target: Target, results: Iterable[CaseResult]) -> list[Position]:
    """Return one position per timed case whose work the problem declares; none on a CPU without measured ceilings."""
    results = list(results)
    if target.family == "cpu" and all(result.roofline_us is None for result in results):
        return []
    works = {case.name: problem.work(case) for case in problem.cases(target.key, Purpose.BENCHMARK)}
    timed = [(result, works.get(result.name)) for result in results if result.candidate_us]
    return [_position(target, result, work) for result, work in timed if work is not None]


def roofline(target: Target, placed: Sequence[Position], found: Ceilings) -> go.Figure:
    """Draw the points under the roofs of the data sheet, and under those that a probe reached where one was run."""
    shown = [one for one in placed if one.intensity > 0]
    if not shown:
        return style.figure([])
    reach = (min(one.intensity for one in shown) / ROOM, max(one.intensity for one in shown) * ROOM)
    dtypes = list(dict.fromkeys(one.dtype for one in shown))
    traces = _cpu_roofs(found, dtypes, reach) if target.family == "cpu" else _roofs(target, found, dtypes, reach)
    rates = [rate for trace in traces for rate in trace.y] + [one.flops_per_s for one in shown]
    return style.figure(
        [*traces, _points(shown)],
        xaxis=logarithmic("FLOP per byte", reach),
        yaxis=logarithmic("FLOP per second", rates, prefixed=True),
    )


def _roofs(target: Target, found: Ceilings, dtypes: Sequence[str], reach: tuple[float, float]) -> list[go.Scatter]:
    """Return the roofs of the data sheet by dtype, and those that a probe reached."""
    sheet = [
        _roof(
            target.bandwidth,
            target.peak_flops.get(dtype),
            reach,
            f"{dtype}, data sheet",
            style.MUTED,
            DASHES[n % 4],
        )
        for n, dtype in enumerate(dtypes)
    ]
    reached = [
        _roof(found.bandwidth, found.matmul_flops.get(dtype), reach, f"{dtype}, measured", style.WARN, "dot")
        for dtype in dtypes
        if found.bandwidth or dtype in found.matmul_flops
    ]
    return sheet + reached


def _cpu_roofs(found: Ceilings, dtypes: Sequence[str], reach: tuple[float, float]) -> list[go.Scatter]:
    """Return one roof per measured level of a processor's memory, up to its measured rate of arithmetic."""
    peak = max((found.matmul_flops[dtype] for dtype in dtypes if dtype in found.matmul_flops), default=None)
    return [
        _roof(level.bandwidth, peak, reach, f"{level.name}, measured", style.MUTED, DASHES[n % 4])
        for n, level in enumerate(found.levels)
    ]


def _position(target: Target, result: CaseResult, work: Work) -> Position:
    # The roof to compare with is that of the dtype in which most of the arithmetic is done.
    named = {FACTOR_DTYPES.get(dtype, dtype): count for dtype, count in work.flops.items()}
    dtype = max(named, key=lambda name: named[name], default="")
    return Position(
        case=result.name,
        flops=sum(named.values()),
        moved_bytes=work.bytes,
        dtype=dtype,
        time_us=result.candidate_us or 0.0,
        roof_us=result.roofline_us or target.roofline_us(work),
    )


def _roof(
    bandwidth: float | None, peak: float | None, reach: tuple[float, float], name: str, colour: str, dash: str
) -> go.Scatter:
    """Draw the line of the bandwidth up to the peak, leaving out what is unknown."""
    low, high = reach
    ridge = peak / bandwidth if peak and bandwidth else None
    corners = [low, *([ridge] if ridge and low < ridge < high else []), high]
    rates = [min(bandwidth * x if bandwidth else float("inf"), peak or float("inf")) for x in corners]
    known = [(x, rate) for x, rate in zip(corners, rates, strict=True) if rate != float("inf")]
    return go.Scatter(
        x=[x for x, _ in known],
        y=[rate for _, rate in known],
        name=style.label(name),
        mode="lines",
        line={"color": colour, "dash": dash, "width": 2},
        hovertemplate="%{y:.3s}FLOP/s<extra></extra>",
    )


def _points(shown: Sequence[Position]) -> go.Scatter:
    return go.Scatter(
        x=[one.intensity for one in shown],
        y=[one.flops_per_s for one in shown],
        text=[style.label(one.case) for one in shown],
        name="Cases",
        mode="markers",
        marker={"size": 10, "color": style.ACCENT},
        hovertemplate="%{text}: %{y:.3s}FLOP/s at %{x:.2f} FLOP/byte<extra></extra>",
    )
