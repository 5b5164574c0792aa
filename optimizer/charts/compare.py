"""Draw several runs on one axis."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.charts.curve import AXES, Axis, Point
from optimizer.models import Run

DASHES = ("solid", "dash", "dot", "dashdot")
COLOURS = (style.ACCENT, style.GOOD, style.WARN, style.BAD, style.LIVE)


def curves(runs: Sequence[tuple[Run, Sequence[Point]]], axis: Axis) -> go.Figure:
    """Draw the best-so-far line of each run; lines differ in dash as well as in colour."""
    traces = [
        go.Scatter(
            x=[point.at(axis) for point in points if point.best is not None],
            y=[point.best for point in points if point.best is not None],
            name=f"#{run.pk} {style.label(str(run), 30)}",
            mode="lines",
            line={"shape": "hv", "width": 2.5, "color": COLOURS[n % len(COLOURS)], "dash": DASHES[n % len(DASHES)]},
        )
        for n, (run, points) in enumerate(runs)
    ]
    return style.figure(
        traces,
        xaxis={"title": {"text": AXES[axis]}, "rangemode": "tozero"},
        yaxis={"title": {"text": "Best speedup over the run's baseline"}, "rangemode": "tozero"},
        shapes=[style.level(1)],
    )
