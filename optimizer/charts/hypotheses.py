"""Predicted against measured gains."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.models import Hypothesis


def predictions(hypotheses: Sequence[Hypothesis]) -> go.Figure:
    """One row a measured hypothesis: its predicted range as a bar, what was measured as a point."""
    rows = [one for one in hypotheses if one.measured_gain is not None]
    names = [f"{number}. {style.label(one.title, 40)}" for number, one in enumerate(rows, 1)]
    return style.figure(
        [_ranges(rows, names), _points(rows, names)],
        xaxis={"title": {"text": "Gain in per cent of speed"}},
        yaxis={"type": "category", "automargin": True, "autorange": "reversed"},
        shapes=[style.level(0, across="y")],
    )


def _ranges(rows: Sequence[Hypothesis], names: Sequence[str]) -> go.Bar:
    known = [(row, name) for row, name in zip(rows, names, strict=True) if row.predicted_max is not None]
    return go.Bar(
        orientation="h",
        base=[row.predicted_min or 0.0 for row, _ in known],
        x=[(row.predicted_max or 0.0) - (row.predicted_min or 0.0) for row, _ in known],
        y=[name for _, name in known],
        name="Predicted",
        width=0.5,
        marker={"color": "var(--accent-soft)", "line": {"color": style.ACCENT, "width": 1}},
        hovertemplate="predicted %{base:.0f} to %{x:.0f} %<extra></extra>",
    )


def _points(rows: Sequence[Hypothesis], names: Sequence[str]) -> go.Scatter:
    return go.Scatter(
        x=[row.measured_gain for row in rows],
        y=list(names),
        name="Measured",
        mode="markers",
        marker={"size": 10, "symbol": "diamond", "color": [_colour(row) for row in rows]},
        hovertemplate="measured %{x:+.1f} %<extra></extra>",
    )


def _colour(row: Hypothesis) -> str:
    return style.GOOD if (row.measured_gain or 0) > 0 else style.BAD
