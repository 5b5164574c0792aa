"""Draw a kernel's results by case: speedups with intervals, and the raw samples."""

from __future__ import annotations

import random
from collections.abc import Sequence

import plotly.graph_objects as go

from optimizer.charts import style
from optimizer.charts.axis import logarithmic
from optimizer.models import Measurement
from optimizer.text.case_names import given_words
from runners.job import CaseResult

SUBJECT_COLOURS = {"candidate": style.ACCENT, "baseline": style.MUTED, "parent": style.WARN}


def speedups(cases: Sequence[CaseResult]) -> go.Figure:
    """Draw one point per case with its 95 % interval, against the baseline at 1."""
    timed = [case for case in cases if case.speedup is not None]
    trace = go.Scatter(
        x=[case.speedup for case in timed],
        y=[style.label(given_words(case.name)) for case in timed],
        mode="markers",
        marker={"color": [_colour(case) for case in timed], "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(case.speedup_high or case.speedup) - case.speedup for case in timed],  # type: ignore[operator]
            "arrayminus": [case.speedup - (case.speedup_low or case.speedup) for case in timed],  # type: ignore[operator]
            "color": style.MUTED,
        },
        hovertemplate="%{y}: %{x:.2f}×<extra></extra>",
    )
    return style.figure(
        [trace],
        showlegend=False,
        xaxis={"title": {"text": "Speedup over the baseline"}, "rangemode": "tozero"},
        yaxis={"type": "category", "automargin": True, "autorange": "reversed"},
        shapes=[style.level(1, across="y")],
    )  # fmt: skip


def samples(measurements: Sequence[Measurement]) -> go.Figure:
    """Draw every raw time as a dot, by case and subject. Jitter is horizontal only, so times stay as measured."""
    subjects = list(dict.fromkeys(row.subject for row in measurements))
    cases = list(dict.fromkeys(row.case for row in measurements))
    traces = [_strip(subject, n, len(subjects), cases, measurements) for n, subject in enumerate(subjects)]
    return style.figure(
        traces,
        xaxis={"tickvals": list(range(len(cases))), "ticktext": [style.label(case, 24) for case in cases],
               "range": [-0.5, len(cases) - 0.5]},
        yaxis=logarithmic("µs a call", [time for row in measurements for time in row.samples_us]),
    )  # fmt: skip


def _strip(
    subject: str, place: int, of: int, cases: Sequence[str], measurements: Sequence[Measurement]
) -> go.Scatter:
    # Seeded by the subject, so that the dots stay in place when the chart is loaded again.
    rng = random.Random(subject)  # noqa: S311  # where a dot lies, nothing else
    middle = (place + 0.5) / of * 0.8 - 0.4
    times = [
        (cases.index(row.case), time) for row in measurements if row.subject == subject for time in row.samples_us
    ]
    return go.Scatter(
        x=[case + middle + rng.uniform(-0.25, 0.25) / of for case, _ in times],
        y=[time for _, time in times],
        name=style.label(subject.capitalize()),
        mode="markers",
        marker={"size": 4, "opacity": 0.6, "color": SUBJECT_COLOURS.get(subject, style.LIVE)},
        hovertemplate="%{y:.2f} µs<extra></extra>",
    )


def _colour(case: CaseResult) -> str:
    if case.speedup_low is not None and case.speedup_low > 1:
        return style.GOOD
    return style.BAD if case.speedup_high is not None and case.speedup_high < 1 else style.MUTED
