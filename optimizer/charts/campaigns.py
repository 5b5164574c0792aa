"""Draw what a campaign has found: fast_p against p, best-so-far bands, and the configurations side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.charts.axis import logarithmic
from optimizer.charts.compare import COLOURS, DASHES
from optimizer.queries.intervals import Interval
from optimizer.queries.suite_statistics import Band

SPENDING = {
    "evaluations": "Evaluations",
    "tokens": "Tokens",
    "usd": "US dollars",
    "device_s": "Device seconds",
}


def fast_p(curves: Mapping[str, Sequence[Interval]], thresholds: Sequence[float]) -> go.Figure:
    """Draw the share of problems that are correct and faster than p, with Wilson's intervals as bars."""
    traces = [
        go.Scatter(
            x=list(thresholds),
            y=[100 * one.value for one in intervals],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [100 * (one.high - one.value) for one in intervals],
                "arrayminus": [100 * (one.value - one.low) for one in intervals],
                "thickness": 1,
                "width": 3,
            },
            name=style.label(name, 30),
            mode="lines+markers",
            line=_line(n),
            hovertemplate="p = %{x}: %{y:.0f} %<extra></extra>",
        )
        for n, (name, intervals) in enumerate(curves.items())
        if intervals
    ]
    return style.figure(
        traces,
        xaxis={"title": {"text": "p: more than p times as fast as the baseline"}, "rangemode": "tozero"},
        yaxis={"title": {"text": "Share of problems, %"}, "range": [0, 102]},
        shapes=[style.level(1, across="y")],
    )


def bands(found: Mapping[str, Band], kind: str) -> go.Figure:
    """Draw the geometric mean of the best so far against spending; each band is the range over seeds."""
    traces: list[go.Scatter] = []
    for n, (name, band) in enumerate(found.items()):
        colour = COLOURS[n % len(COLOURS)]
        edge = {"mode": "lines", "line": {"width": 0, "shape": "hv", "color": colour}, "showlegend": False,
                "hoverinfo": "skip", "legendgroup": name}  # fmt: skip
        traces.append(go.Scatter(x=band.at, y=band.high, **edge))
        traces.append(go.Scatter(x=band.at, y=band.low, fill="tonexty", opacity=0.25, **edge))
        traces.append(go.Scatter(x=band.at, y=band.middle, name=style.label(name, 30), mode="lines",
                                 legendgroup=name, line={**_line(n), "shape": "hv"}))  # fmt: skip
    values = [value for band in found.values() for value in (*band.low, *band.high)]
    return style.figure(
        traces,
        xaxis={"title": {"text": f"{SPENDING[kind]} of each run"}, "rangemode": "tozero"},
        yaxis=logarithmic("Best speedup so far, geometric mean", values),
        shapes=[style.level(1)],
    )


def _line(n: int) -> dict[str, object]:
    return {"width": 2.5, "color": COLOURS[n % len(COLOURS)], "dash": DASHES[n % len(DASHES)]}
