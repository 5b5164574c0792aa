"""Draw predicted against measured gains."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.models import Hypothesis

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
COLOURS = (style.ACCENT, style.GOOD, style.WARN, style.LIVE, style.BAD)


def predictions(hypotheses: Sequence[Hypothesis]) -> go.Figure:
    """Draw one row per measured hypothesis: its predicted range as a bar, the measured gain as a point."""
    rows = [one for one in hypotheses if one.measured_gain is not None]
    names = [f"{number}. {style.label(one.title, 40)}" for number, one in enumerate(rows, 1)]
    return style.figure(
        [_ranges(rows, names), _points(rows, names)],
        xaxis={"title": {"text": "Gain, %"}},
        yaxis={"type": "category", "automargin": True, "autorange": "reversed"},
        shapes=[style.level(0, across="y")],
    )


def calibration(hypotheses: Sequence[Hypothesis]) -> go.Figure:
    """Draw the midpoint of the predicted range against the measured gain, with one symbol per role and model.

    On the diagonal both agree; above it the change gained more than predicted.
    """
    rows = [one for one in hypotheses if None not in (one.measured_gain, one.predicted_min, one.predicted_max)]
    authors = list(dict.fromkeys(_author(row) for row in rows))
    traces = [_cloud([row for row in rows if _author(row) == who], who, n) for n, who in enumerate(authors)]
    ends = [value for row in rows for value in (_middle(row), row.measured_gain or 0.0)]
    agree = go.Scatter(
        x=[min(ends, default=0.0), max(ends, default=0.0)],
        y=[min(ends, default=0.0), max(ends, default=0.0)],
        name="As predicted",
        mode="lines",
        line={"color": style.MUTED, "dash": "dot", "width": 1},
        hoverinfo="skip",
    )
    return style.figure(
        [*traces, agree] if rows else [],
        xaxis={"title": {"text": "Predicted gain, %"}},
        yaxis={"title": {"text": "Measured gain, %"}},
    )


def _cloud(rows: Sequence[Hypothesis], who: str, n: int) -> go.Scatter:
    halves = [((row.predicted_max or 0.0) - (row.predicted_min or 0.0)) / 2 for row in rows]
    return go.Scatter(
        x=[_middle(row) for row in rows],
        y=[row.measured_gain for row in rows],
        text=[style.label(row.title, 40) for row in rows],
        name=who,
        mode="markers",
        marker={"size": 9, "symbol": SYMBOLS[n % len(SYMBOLS)], "color": COLOURS[n % len(COLOURS)]},
        error_x={"type": "data", "array": halves, "color": style.MUTED, "thickness": 1},
        hovertemplate="%{text}: predicted %{x:+.1f}, measured %{y:+.1f} %<extra></extra>",
    )


def _author(row: Hypothesis) -> str:
    return style.label(f"{row.call.role} {row.call.model_name or row.call.provider}" if row.call else "unknown", 40)


def _middle(row: Hypothesis) -> float:
    return ((row.predicted_min or 0.0) + (row.predicted_max or 0.0)) / 2


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
