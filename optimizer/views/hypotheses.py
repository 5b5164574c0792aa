"""Show the hypothesis board: what was expected of each idea, and what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts.hypotheses import calibration, predictions
from optimizer.models import Hypothesis, HypothesisKind, Run
from optimizer.views.signed_in import user_of

CHARTS = {"ranges": predictions, "calibration": calibration}
BAR_WIDTH, BAR_MARGIN = 160, 6


@dataclass(frozen=True)
class RangeBar:
    """Hold a predicted range as a bar at `left`, `span` wide (0: none), and the measured gain as a point.

    All values are in units of a drawing that is `width` wide.
    """

    width: int
    zero: float
    left: float
    span: float
    measured: float | None


@dataclass(frozen=True)
class BoardRow:
    """Hold a hypothesis with its bar."""

    hypothesis: Hypothesis
    bar: RangeBar | None


@dataclass(frozen=True)
class BoardRound:
    """Hold a round: what was tried or proposed in it, and what was folded because nobody built it."""

    number: int
    tried: list[BoardRow]
    folded: list[BoardRow]

    @property
    def measured(self) -> int:
        """Return how many of the round's hypotheses were measured."""
        return sum(row.hypothesis.measured_gain is not None for row in self.tried)


@login_required
@require_safe
def hypotheses(request: HttpRequest, run_id: int) -> HttpResponse:
    """List all hypotheses of a run by round."""
    run = access_run(user_of(request), run_id, "view")
    rows = _of(run)
    scale = scale_of(rows)
    rounds: dict[int, list[BoardRow]] = defaultdict(list)
    for row in rows:
        rounds[row.round].append(BoardRow(row, range_bar(row, scale)))
    context = {
        "run": run,
        "rounds": [_round(number, rounds[number]) for number in sorted(rounds, reverse=True)],
        "calibrations": Hypothesis.objects.filter(run=run).calibrations(),
        "measured": sum(row.measured_gain is not None for row in rows),
    }
    return render(request, "runs/hypotheses.html", context)


@login_required
@require_safe
def hypotheses_chart(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return predicted against measured gains as plotly JSON: `?axis=ranges` by hypothesis, `calibration` by model."""
    run = access_run(user_of(request), run_id, "view")
    draw = CHARTS.get(request.GET.get("axis", "ranges"))
    if draw is None:
        raise Http404
    return HttpResponse(draw(_of(run)).to_json(), content_type="application/json")


def _round(number: int, rows: Sequence[BoardRow]) -> BoardRound:
    """Return the round with measured hypotheses first, best gain first, then chosen ones, then the rest."""
    shown = sorted(rows, key=lambda row: _rank(row.hypothesis))
    # Avenues are ideas from which experiments are made: many, long, and never built themselves.
    return BoardRound(
        number,
        [row for row in shown if _is_tried(row.hypothesis)],
        [row for row in shown if not _is_tried(row.hypothesis)],
    )


def _rank(row: Hypothesis) -> tuple[bool, float, bool, int]:
    gain = row.measured_gain
    return gain is None, -(gain or 0.0), not row.chosen, row.pk


def _is_tried(row: Hypothesis) -> bool:
    # Instructions, repairs and tunings are carried out as they are written.
    is_proposal = row.kind in (HypothesisKind.AVENUE, HypothesisKind.EXPERIMENT)
    return row.chosen or row.measured_gain is not None or not is_proposal


def scale_of(rows: Sequence[Hypothesis]) -> tuple[float, float]:
    """Return the smallest and largest gain that was predicted or measured, in per cent, including zero."""
    known = [gain for row in rows for gain in (row.predicted_min, row.predicted_max, row.measured_gain)]
    gains = [gain for gain in known if gain is not None]
    return min([0.0, *gains]), max([0.0, *gains])


def range_bar(row: Hypothesis, scale: tuple[float, float]) -> RangeBar | None:
    """Return the row's bar on that scale, or None without prediction and measurement."""
    low, high = scale
    predicted = row.predicted_min is not None and row.predicted_max is not None
    if high <= low or not (predicted or row.measured_gain is not None):
        return None

    def place(gain: float) -> float:
        return round(BAR_MARGIN + (gain - low) / (high - low) * (BAR_WIDTH - 2 * BAR_MARGIN), 1)

    left = place(row.predicted_min or 0.0) if predicted else 0.0
    right = place(row.predicted_max or 0.0) if predicted else 0.0
    measured = None if row.measured_gain is None else place(row.measured_gain)
    return RangeBar(BAR_WIDTH, place(0.0), left, max(1.0, right - left) if predicted else 0.0, measured)


def _of(run: Run) -> list[Hypothesis]:
    rows = Hypothesis.objects.filter(run=run).select_related("basis", "call").prefetch_related("kernels")
    heavy = ("basis__source", "basis__report", "basis__meta", "call__messages", "call__answer_text", "call__answer")
    return list(rows.defer(*heavy).order_by("round", "pk"))
