"""The hypothesis board: what was expected of each idea, and what came of it."""

from __future__ import annotations

from collections import defaultdict

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts.hypotheses import predictions
from optimizer.models import Hypothesis, Run
from optimizer.views.signed_in import user_of


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
        "calibrations": Hypothesis.objects.filter(run=run).calibrations(),
        "measured": sum(row.measured_gain is not None for row in rows),
    }
    return render(request, "runs/hypotheses.html", context)


@login_required
@require_safe
def hypotheses_chart(request: HttpRequest, run_id: int) -> HttpResponse:
    """Predicted against measured as plotly JSON."""
    run = access_run(user_of(request), run_id, "view")
    return HttpResponse(predictions(_of(run)).to_json(), content_type="application/json")


def _of(run: Run) -> list[Hypothesis]:
    rows = Hypothesis.objects.filter(run=run).select_related("basis", "call").prefetch_related("kernels")
    heavy = ("basis__source", "basis__report", "basis__meta", "call__messages", "call__answer_text", "call__answer")
    return list(rows.defer(*heavy).order_by("round", "pk"))
