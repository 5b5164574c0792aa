"""The hypothesis board: what was expected of each idea, and what came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts.hypotheses import predictions
from optimizer.models import Hypothesis, Run
from optimizer.views.signed_in import user_of


@dataclass(frozen=True)
class Calibration:
    """How well one model knows what its ideas are worth. `bias` is predicted (middle of the range) minus measured, in
    points of per cent: above zero, it promises too much."""

    model: str
    measured: int
    within: int
    bias: float


@login_required
@require_safe
def hypotheses(request: HttpRequest, run_id: int) -> HttpResponse:
    """All hypotheses of a run by round."""
    run = access_run(user_of(request), run_id, "view")
    rows = _of(run)
    rounds: dict[int, list[Hypothesis]] = defaultdict(list)
    for row in rows:
        rounds[row.round].append(row)
    context = {
        "run": run,
        "rounds": sorted(rounds.items(), reverse=True),
        "calibrations": calibrations(rows),
        "measured": sum(row.measured_gain is not None for row in rows),
    }
    return render(request, "runs/hypotheses.html", context)


@login_required
@require_safe
def hypotheses_chart(request: HttpRequest, run_id: int) -> HttpResponse:
    """Predicted against measured as plotly JSON."""
    run = access_run(user_of(request), run_id, "view")
    return HttpResponse(predictions(_of(run)).to_json(), content_type="application/json")


def calibrations(rows: Iterable[Hypothesis]) -> list[Calibration]:
    """One line a model, over the hypotheses that were both predicted and measured."""
    by_model: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows:
        if row.measured_gain is not None and row.predicted_min is not None and row.predicted_max is not None:
            model = row.call.model if row.call else ""
            by_model[model].append((row.predicted_min, row.predicted_max, row.measured_gain))
    return [_calibration(model, found) for model, found in sorted(by_model.items())]


def _calibration(model: str, found: Sequence[tuple[float, float, float]]) -> Calibration:
    within = sum(low <= gained <= high for low, high, gained in found)
    return Calibration(model, len(found), within, fmean((low + high) / 2 - gained for low, high, gained in found))


def _of(run: Run) -> list[Hypothesis]:
    rows = Hypothesis.objects.filter(run=run).select_related("basis", "call").prefetch_related("kernels")
    heavy = ("basis__source", "basis__report", "basis__meta", "call__messages", "call__answer_text", "call__answer")
    return list(rows.defer(*heavy).order_by("round", "pk"))
