"""Draw tuned parameters: parallel coordinates, slices, a contour of two parameters, and importance.

Parallel coordinates are drawn as ordinary lines, because plotly's own trace for them compiles code from text, which
our content security policy forbids.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.queries.parameter_importance import Importance, TrialGroup, TunedTrial
from runners.job import TunableValue

COLOURS = (style.ACCENT, style.GOOD, style.WARN, style.LIVE, style.BAD)
BANDS = (("Fastest fifth", style.GOOD, 2.2, 0.9), ("Second fifth", style.ACCENT, 1.2, 0.6),
         ("Middle fifth", style.MUTED, 1.0, 0.35), ("Fourth fifth", style.WARN, 1.0, 0.35),
         ("Slowest fifth", style.BAD, 1.0, 0.45))  # fmt: skip


def parallel(space: TrialGroup) -> go.Figure:
    """Draw one line per trial through its parameter values to its time; slower fifths are drawn first."""
    ranked = sorted(space.trials, key=lambda trial: trial.time_us)
    axes = [_places(sorted({trial.values[name] for trial in ranked}, key=_order)) for name in space.names]
    fastest, slowest = ranked[0].time_us, ranked[-1].time_us
    span = (slowest - fastest) or 1.0
    bands = [ranked[n * len(ranked) // 5 : (n + 1) * len(ranked) // 5] for n in range(5)]
    traces = [
        _band(band, look, space.names, axes, lambda trial: 1 - (trial.time_us - fastest) / span)
        for band, look in zip(bands, BANDS, strict=True)
        if band
    ]
    ends = [(len(space.names), 1.0, f"{fastest:.1f} µs"), (len(space.names), 0.0, f"{slowest:.1f} µs")]
    marks = [
        (n, place, style.label(str(value), 14)) for n, axis in enumerate(axes) for value, place in axis.items()
    ]
    return style.figure(
        traces[::-1],
        margin={"l": 24, "r": 72, "t": 12, "b": 44},
        xaxis={"automargin": True, "tickvals": list(range(len(space.names) + 1)),
               "ticktext": [*(style.label(name, 20) for name in space.names), "time"],
               "range": [-0.25, len(space.names) + 0.45]},
        # Each parameter has its own scale from 0 to 1; the labels beside the axes give the values.
        yaxis={"visible": False, "range": [-0.08, 1.08]},
        annotations=[_mark(*mark) for mark in [*marks, *ends]],
        shapes=[{**style.level(n, across="y"), "line": {"color": style.LINE, "width": 1}}
                for n in range(len(space.names) + 1)],
    )  # fmt: skip


def slices(space: TrialGroup) -> go.Figure:
    """Draw the time of every trial over the values of each parameter, one parameter beside the other."""
    traces = []
    for n, name in enumerate(space.names):
        values = sorted({trial.values[name] for trial in space.trials}, key=_order)
        places = {value: f"{style.label(name, 16)} = {style.label(str(value), 12)}" for value in values}
        # Trials come in no order of their values: sorted, the axis has them from the smallest on.
        trials = sorted(space.trials, key=lambda trial: values.index(trial.values[name]))
        traces.append(
            go.Scatter(
                x=[places[trial.values[name]] for trial in trials], y=[trial.time_us for trial in trials],
                name=style.label(name, 20), mode="markers", customdata=[[trial.number] for trial in trials],
                marker={"size": 7, "opacity": 0.75, "color": COLOURS[n % len(COLOURS)]},
                hovertemplate="#%{customdata[0]}  %{y:.2f} µs<extra></extra>",
            )
        )  # fmt: skip
    return style.figure(
        traces, xaxis={"type": "category", "automargin": True}, yaxis={"title": {"text": "Time, µs"}}
    )


def contour(space: TrialGroup, rows: Sequence[Importance]) -> go.Figure:
    """Draw the least time for each pair of values of the two most important parameters; empty pairs were not tried."""
    names = [row.name for row in rows[:2]]
    if len(names) < 2:
        return style.figure([])
    across, up = (sorted({trial.values[name] for trial in space.trials}, key=_order) for name in names)
    least: dict[tuple[TunableValue, TunableValue], float] = {}
    for trial in space.trials:
        pair = (trial.values[names[0]], trial.values[names[1]])
        least[pair] = min(trial.time_us, least.get(pair, trial.time_us))
    cells = go.Heatmap(
        x=[str(value) for value in across], y=[str(value) for value in up],
        z=[[least.get((x, y)) for x in across] for y in up],
        colorscale=[[0, style.GOOD], [0.5, style.WARN], [1, style.BAD]], colorbar={"title": {"text": "µs"}},
        hovertemplate="%{x}, %{y}: %{z:.2f} µs<extra></extra>", hoverongaps=False,
    )  # fmt: skip
    return style.figure(
        [cells],
        xaxis={"type": "category", "title": {"text": style.label(names[0], 30)}},
        yaxis={"type": "category", "title": {"text": style.label(names[1], 30)}},
    )


def importance(rows: Sequence[Importance]) -> go.Figure:
    """Draw the share of the variation that each parameter explains alone."""
    bars = go.Bar(
        orientation="h", x=[row.share * 100 for row in rows], y=[style.label(row.name) for row in rows],
        marker={"color": style.ACCENT}, hovertemplate="%{y}: %{x:.0f} %<extra></extra>",
    )  # fmt: skip
    return style.figure(
        [bars], showlegend=False,
        xaxis={"title": {"text": "% of the variation of log time, alone"}, "range": [0, 100]},
        yaxis={"type": "category", "automargin": True, "autorange": "reversed"},
    )  # fmt: skip


def _band(trials: Sequence[TunedTrial], look: tuple[str, str, float, float], names: Sequence[str],
          axes: Sequence[dict[TunableValue, float]], height: object) -> go.Scatter:  # fmt: skip
    name, colour, width, opacity = look
    x: list[float | None] = []
    y: list[float | None] = []
    told: list[list[int | None]] = []
    for trial in trials:
        x += [*range(len(names) + 1), None]
        y += [*(axis[trial.values[one]] for one, axis in zip(names, axes, strict=True)), height(trial), None]  # type: ignore[operator]
        here: list[int | None] = [trial.number]
        told += [*[here] * (len(names) + 1), [None]]
    return go.Scatter(
        x=x, y=y, name=name, mode="lines", connectgaps=False, opacity=opacity, customdata=told,
        line={"color": colour, "width": width}, hovertemplate="#%{customdata[0]}<extra></extra>",
    )  # fmt: skip


def _places(values: Sequence[TunableValue]) -> dict[TunableValue, float]:
    """Space the values evenly, so that 16, 32, 64 do not crowd at one end."""
    return {value: n / (len(values) - 1) if len(values) > 1 else 0.5 for n, value in enumerate(values)}


def _order(value: TunableValue) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def _mark(x: float, y: float, text: str) -> dict[str, object]:
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": "left", "xshift": 4, "font": {"size": 11}}
