"""Compare two to eight runs: differing settings, curves and outcomes."""

from __future__ import annotations

from typing import get_args

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.charts import compare as charts
from optimizer.charts.curve import AXES, Axis, points_of
from optimizer.forms.run_differences import differences_of
from optimizer.models import Run
from optimizer.queries.comparison import MOST, compared, on_same_ground, outcomes_of
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """Compare the runs named by `?run=`, ignoring repetitions."""
    runs = _runs(request)
    outcomes = outcomes_of(runs)
    context = {
        "runs": runs,
        "outcomes": outcomes,
        "has_call": any(one.call_us for one in outcomes),
        "differences": differences_of(runs),
        "axes": AXES,
        "same_ground": on_same_ground(runs),
        "most": MOST,
    }
    return render(request, "runs/compare.html", context)


@login_required
@require_safe
def compare_curves(request: HttpRequest) -> HttpResponse:
    """Return their curves as plotly JSON, against `?axis=`."""
    axis = request.GET.get("axis", "evaluations")
    if axis not in get_args(Axis):
        raise Http404
    drawn = [(run, points_of(run)) for run in _runs(request)]
    return HttpResponse(charts.curves(drawn, axis).to_json(), content_type="application/json")  # type: ignore[arg-type]


def _runs(request: HttpRequest) -> list[Run]:
    """Return those of the named runs that the person may see, in the order named."""
    named = [number for text in request.GET.getlist("run") if (number := parse_whole_number(text)) is not None]
    return compared(user_of(request), list(dict.fromkeys(named))[:MOST])
