"""Draw what runs spent against the speedup of their best kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.charts.hypotheses import COLOURS, SYMBOLS
from optimizer.queries.cost import Cost, RunCost
from optimizer.search import strategy_title

AXES: dict[Cost, str] = {
    "usd": "US dollars",
    "tokens": "Tokens",
    "device_minutes": "Device minutes",
    "evaluations": "Evaluations",
}


def cost(runs: Sequence[RunCost], axis: Cost, baseline: str) -> go.Figure:
    """Draw one point per run with the interval of its speedup, one symbol per strategy, and the frontier.

    The frontier is the best speedup that was reached at no higher cost. Runs whose cost is unknown are left out.
    """
    known = [one for one in runs if one.spent(axis) is not None]
    strategies = sorted({one.strategy for one in known})
    points = [
        _points([one for one in known if one.strategy == name], name, n, axis) for n, name in enumerate(strategies)
    ]
    return style.figure(
        [_frontier(known, axis), *points] if known else [],
        xaxis={"title": {"text": AXES[axis]}, **_room([one.spent(axis) or 0.0 for one in known])},
        yaxis={"title": {"text": f"Speedup over {style.label(baseline)}"}, "rangemode": "tozero"},
        shapes=[style.level(1)],
    )


def axes_for(runs: Sequence[RunCost]) -> list[tuple[Cost, str]]:
    """Return the axes, first those on which the runs have spent anything."""
    spent = {axis: any(one.spent(axis) for one in runs) for axis in AXES}
    return sorted(AXES.items(), key=lambda item: not spent[item[0]])


def _room(spent: Sequence[float]) -> dict[str, Any]:
    """Return a range from zero with room for the marks at both ends."""
    most = max(spent, default=0.0) or 1.0
    return {"range": [-0.03 * most, 1.05 * most]}


def _points(runs: Sequence[RunCost], strategy: str, n: int, axis: Cost) -> go.Scatter:
    return go.Scatter(
        x=[one.spent(axis) for one in runs],
        y=[one.speedup for one in runs],
        text=[f"#{one.run} {style.label(one.title, 40)}" for one in runs],
        name=style.label(strategy_title(strategy), 30),
        mode="markers",
        marker={"size": 9, "symbol": SYMBOLS[n % len(SYMBOLS)], "color": COLOURS[n % len(COLOURS)]},
        error_y={
            "type": "data",
            "array": [one.high - one.speedup for one in runs],
            "arrayminus": [one.speedup - one.low for one in runs],
            "color": style.MUTED,
            "thickness": 1,
        },
        customdata=[[one.run] for one in runs],
        hovertemplate="%{text}<br>%{x:,.6~g}, %{y:.2f}×<extra></extra>",
    )


def _frontier(runs: Sequence[RunCost], axis: Cost) -> go.Scatter:
    steps: list[tuple[float, float]] = []
    for one in sorted(runs, key=lambda one: (one.spent(axis) or 0.0, -one.speedup)):
        if not steps or one.speedup > steps[-1][1]:
            steps.append((one.spent(axis) or 0.0, one.speedup))
    return go.Scatter(
        x=[spent for spent, _ in steps],
        y=[speedup for _, speedup in steps],
        name="Best at this cost",
        mode="lines",
        line={"shape": "hv", "color": style.LINE, "width": 2},
        hoverinfo="skip",
    )
