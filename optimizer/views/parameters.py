"""Show the effect of tuned parameters."""

from __future__ import annotations

import plotly.graph_objects as go
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts import parameters as charts
from optimizer.models import Run
from optimizer.queries.compiled_ahead import MOST_NAMED, summary_of
from optimizer.queries.parameter_importance import ROWS, TrialGroup, fastest, importances, spaces_of
from optimizer.runs.transfer import transfer_notes
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def tuned(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show parallel coordinates and importances, each with its table, what was compiled ahead and what was known."""
    run = access_run(user_of(request), run_id, "view")
    spaces = spaces_of(run)
    space = _chosen(request, spaces)
    trials = fastest(space, ROWS) if space else []
    ahead = summary_of(run)
    context = {
        "run": run,
        "spaces": spaces,
        "space": space,
        "trials": [(trial, [trial.values[name] for name in space.names]) for trial in trials] if space else [],
        "importances": importances(space) if space else [],
        "ahead": ahead,
        "transfer": transfer_notes(run),
        "ruled_out": ahead.ruled_out[:MOST_NAMED] if ahead else [],
    }
    return render(request, "runs/tuned.html", context)


@login_required
@require_safe
def tuned_chart(request: HttpRequest, run_id: int, name: str) -> HttpResponse:
    """Return `parallel`, `slices`, `contour` or `importance` as plotly JSON; `?axis=` chooses among the first three."""
    space = _chosen(request, spaces_of(_run(request, run_id)))
    if space is None:
        raise Http404
    if name == "importance":
        figure = charts.importance(importances(space))
    else:
        figure = {"slices": charts.slices, "contour": _contour}.get(request.GET.get("axis", name), charts.parallel)(
            space
        )
    return HttpResponse(figure.to_json(), content_type="application/json")


def _contour(space: TrialGroup) -> go.Figure:
    return charts.contour(space, importances(space))


def _run(request: HttpRequest, run_id: int) -> Run:
    return access_run(user_of(request), run_id, "view")


def _chosen(request: HttpRequest, spaces: list[TrialGroup]) -> TrialGroup | None:
    wanted = request.GET.get("of")
    return next((space for space in spaces if space.key == wanted), spaces[0] if spaces else None)
