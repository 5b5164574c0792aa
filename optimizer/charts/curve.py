"""Draw the best-so-far curve: the speedup of the leading kernel against evaluations, time or dollars.

The line follows the leader as first measured: the best lower bound, unless a direct comparison says otherwise. A
claim that the referee did not confirm, or that a second measurement refuted, is shown as a point and never leads.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import plotly.graph_objects as go
from django.db.models import F
from django.db.models.functions import Coalesce

from optimizer.charts import style
from optimizer.events.payloads import BestRefuted
from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, LlmCall, Run, VerdictChoice
from optimizer.queries.outcomes import COUNTED

Axis = Literal["evaluations", "minutes", "usd", "tokens"]
AXES: dict[Axis, str] = {
    "evaluations": "Evaluations",
    "minutes": "Minutes since the start",
    "usd": "US dollars",
    "tokens": "Tokens",
}
GROUPS = (
    ("Faster", "circle", style.GOOD),
    ("Correct", "circle-open", style.MUTED),
    ("Claim not confirmed", "diamond-open", style.WARN),
)


@dataclass(frozen=True)
class Point:
    """Hold one kernel's first evaluation, in the order in which they ended.

    `evaluations` is how many were counted up to it (see `optimizer.queries.outcomes`). `best` is the speedup of the
    kernel that led after it; `excluded` points, unconfirmed or refuted, never lead.
    """

    number: int
    status: EvaluationStatus
    verdict: str
    evaluations: int
    minutes: float
    usd: float
    tokens: int
    speedup: float | None
    low: float | None
    high: float | None
    best: float | None
    excluded: bool = False

    def at(self, axis: Axis) -> float:
        """Return the position on that axis."""
        return float(getattr(self, axis))


def points_of(run: Run) -> list[Point]:
    """Return the run's finished first evaluations with three queries."""
    fields = (
        *("kernel__number", "counted", "status", "verdict", "unconfirmed", "finished_at"),
        *("speedup", "speedup_low", "speedup_high", "kernel_id", "opponent_id", "parent_verdict"),
    )
    # a kernel that another one beat side by side keeps its claim over the baseline
    said = run.events.filter(type=BestRefuted.type).values_list("payload__number", "payload__by")
    refuted = {number for number, by in said if by is None}
    rows = (
        Evaluation.objects.filter(first_of__run=run, state=EvaluationState.DONE, finished_at__isnull=False)
        .annotate(counted=COUNTED)
        .order_by("finished_at", "pk")
        .values_list(*fields)
    )
    # A run that never started may have kernels that people suggested.
    began = run.started_at or run.created_at
    spent = _Spending(run)
    lead = _Lead()
    points: list[Point] = []
    count = 0
    for number, counted, status, verdict, unconfirmed, ended, speedup, low, high, *pair in rows:
        # Seeds come before the first evaluation, at zero: the axis ends at the number that the budget counts.
        count += bool(counted)
        known = speedup if status == EvaluationStatus.CORRECT else None
        excluded = known is not None and (unconfirmed or number in refuted)
        # Only supported claims raise the curve, as only they can lead the run.
        if known is not None and not excluded:
            lead.meet(known, low or 0.0, *pair)
        minutes = max(0.0, (ended - began).total_seconds() / 60)
        outcome = EvaluationStatus(status)
        cost = spent.until(ended)
        points.append(
            Point(number, outcome, verdict, count, minutes, *cost, known, low, high, lead.speedup, excluded)
        )
    return _with_headline(run, points)


def _with_headline(run: Run, points: list[Point]) -> list[Point]:
    """Let the line of a run that has ended come out at the figure that was settled in cold processes."""
    if not points or run.best_speedup is None or not run.state_choice.is_terminal:
        return points
    return [*points[:-1], replace(points[-1], best=run.best_speedup)]


class _Lead:
    """Track which kernel leads while kernels arrive one by one."""

    def __init__(self) -> None:
        self.speedup: float | None = None
        self._low, self._kernel = 0.0, 0
        self._met: set[int] = set()

    def meet(self, speedup: float, low: float, kernel: int, opponent: int | None, verdict: str) -> None:
        """Let a kernel take the lead if it was proven faster than the leader, or has a better lower bound.

        The latter does not count for a kernel that was proven slower than one that arrived earlier.
        """
        is_beaten = verdict == VerdictChoice.SLOWER and opponent in self._met
        beats_leader = verdict == VerdictChoice.FASTER and opponent == self._kernel
        if self.speedup is None or beats_leader or (low > self._low and not is_beaten):
            self.speedup, self._low, self._kernel = speedup, low, kernel
        self._met.add(kernel)


class _Spending:
    """Sum the dollars and tokens of model calls up to a moment; moments must be asked for in ascending order."""

    def __init__(self, run: Run) -> None:
        calls = LlmCall.objects.filter(run=run, answered_at__isnull=False).order_by("answered_at")
        tokens = Coalesce(F("prompt_tokens"), 0) + Coalesce(F("answer_tokens"), 0)
        self._rest: Iterator[tuple[Any, ...]] = iter(calls.values_list("answered_at", "cost_usd", tokens))
        self._next = next(self._rest, None)
        self._usd, self._tokens = 0.0, 0

    def until(self, moment: dt.datetime) -> tuple[float, int]:
        """Return the dollars and the tokens of the calls that were answered by then."""
        while self._next is not None and self._next[0] <= moment:
            self._usd += float(self._next[1] or 0)
            self._tokens += self._next[2]
            self._next = next(self._rest, None)
        return self._usd, self._tokens


def curve(points: Sequence[Point], axis: Axis, baseline: str) -> go.Figure:
    """Draw the step curve, correct kernels as points, failures as a rug below, the baseline as a line at 1."""
    failed = [point for point in points if point.speedup is None]
    rug = [_failed(failed, axis)] if failed else []
    return style.figure(
        [_best_line(points, axis), *_correct(points, axis), *rug],
        xaxis={"title": {"text": AXES[axis]}, "rangemode": "tozero", **_ticks(points, axis)},
        yaxis={"title": {"text": f"Speedup over {style.label(baseline)}"}, "rangemode": "tozero"},
        shapes=[style.level(1)],
        **(_RUG if rug else {}),
    )


_RUG = {
    "xaxis_anchor": "y2",
    "yaxis_domain": [0.12, 1],
    "yaxis2": {
        "domain": [0, 0.08],
        "showticklabels": False,
        "showgrid": False,
        "range": [-1, 1],
        "fixedrange": True,
    },
}


def _ticks(points: Sequence[Point], axis: Axis) -> dict[str, Any]:
    """Return an axis with whole evaluations only, however few there are."""
    # Plotly would label half evaluations otherwise.
    return {"dtick": 1} if axis == "evaluations" and len(points) <= 12 else {}


def _best_line(points: Sequence[Point], axis: Axis) -> go.Scatter:
    known = [point for point in points if point.best is not None]
    # Keep the ends and the points where the line rises; a run of 5,000 kernels draws a line of a few dozen points.
    steps = [point for n, point in enumerate(known) if n in (0, len(known) - 1) or point.best != known[n - 1].best]
    return go.Scatter(
        x=[point.at(axis) for point in steps],
        y=[point.best for point in steps],
        name="Best so far",
        mode="lines",
        line={"shape": "hv", "color": style.ACCENT, "width": 2.5},
        hoverinfo="skip",
    )


def _correct(points: Sequence[Point], axis: Axis) -> list[go.Scatter]:
    groups: list[list[Point]] = [[] for _ in GROUPS]
    for point in points:
        if point.speedup is not None:
            groups[2 if point.excluded else int(point.verdict != "faster")].append(point)
    shown = [(group, look) for group, look in zip(groups, GROUPS, strict=True) if group or look != GROUPS[2]]
    return [_marks(group, axis, *look) for group, look in shown]


def _marks(points: Sequence[Point], axis: Axis, name: str, symbol: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[point.at(axis) for point in points],
        y=[point.speedup for point in points],
        name=name,
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 7},
        cliponaxis=False,  # seeds stand on the axis, which would cut their marks in half
        customdata=[[point.number, point.low, point.high] for point in points],
        hovertemplate="#%{customdata[0]}  %{y:.2f}× (%{customdata[1]:.2f}–%{customdata[2]:.2f})<extra></extra>",
    )


def _failed(failed: Sequence[Point], axis: Axis) -> go.Scatter:
    return go.Scatter(
        x=[point.at(axis) for point in failed],
        y=[0] * len(failed),
        yaxis="y2",
        name="Not accepted",
        mode="markers",
        marker={"symbol": "x-thin", "size": 7, "color": style.BAD, "line": {"width": 1.5, "color": style.BAD}},
        customdata=[[point.number, point.status.label] for point in failed],
        hovertemplate="#%{customdata[0]}  %{customdata[1]}<extra></extra>",
    )
