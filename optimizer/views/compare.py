"""Two to eight runs side by side: what differs in their settings, their curves, what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.charts import compare as charts
from optimizer.charts.curve import AXES, Axis, points_of
from optimizer.forms.start_run import values_of
from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Run, VerdictChoice
from optimizer.views.signed_in import user_of

MOST = 8


@dataclass(frozen=True)
class Outcome:
    """What came of one run. A win is a kernel that is correct and, beyond the A/A band, faster than the baseline."""

    run: Run
    evaluated: int
    correct: int
    wins: int

    @property
    def success(self) -> float | None:
        """Share of kernels that were correct, per cent."""
        return 100 * self.correct / self.evaluated if self.evaluated else None

    @property
    def fast(self) -> float | None:
        """Share of kernels that were correct and faster, per cent."""
        return 100 * self.wins / self.evaluated if self.evaluated else None

    @property
    def usd_per_win(self) -> float | None:
        """Dollars of model calls for each win."""
        return float(self.run.spent_usd) / self.wins if self.wins else None


@login_required
@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """The runs that `?run=` names, each as often as it stands there once."""
    runs = _runs(request)
    context = {
        "runs": runs,
        "outcomes": _outcomes(runs),
        "differences": _differences(runs),
        "axes": AXES,
        "same_ground": len({(run.problem_version_id, run.target_id, run.baseline) for run in runs}) <= 1,
        "most": MOST,
    }
    return render(request, "runs/compare.html", context)


@login_required
@require_safe
def compare_curves(request: HttpRequest) -> HttpResponse:
    """Their curves as plotly JSON, against `?axis=`."""
    axis = request.GET.get("axis", "evaluations")
    if axis not in get_args(Axis):
        raise Http404
    drawn = [(run, points_of(run)) for run in _runs(request)]
    return HttpResponse(charts.curves(drawn, axis).to_json(), content_type="application/json")  # type: ignore[arg-type]


def _runs(request: HttpRequest) -> list[Run]:
    """Those of the named runs that the person may see, in the order named."""
    named = [
        int(text) for text in request.GET.getlist("run") if text.isascii() and text.isdigit() and len(text) < 19
    ]
    wanted = list(dict.fromkeys(named))[:MOST]
    visible = Run.objects.visible_to(user_of(request)).order_by().values("pk")
    wide = (
        Run.objects.for_dashboard().filter(pk__in=visible).defer("problem_version__bundle", "best_kernel__source")
    )
    found = wide.in_bulk(wanted)
    return [found[number] for number in wanted if number in found]


def _outcomes(runs: Sequence[Run]) -> list[Outcome]:
    correct = Q(status=EvaluationStatus.CORRECT)
    rows = Evaluation.objects.filter(first_of__run__in=runs, state=EvaluationState.DONE).values_list(
        "first_of__run"
    )
    counted = rows.annotate(
        evaluated=Count("pk"),
        correct=Count("pk", filter=correct),
        wins=Count("pk", filter=correct & Q(verdict=VerdictChoice.FASTER)),
    )
    counts = {run_id: numbers for run_id, *numbers in counted}
    return [Outcome(run, *counts.get(run.pk, (0, 0, 0))) for run in runs]


def _differences(runs: Sequence[Run]) -> list[tuple[str, list[Any]]]:
    """Settings in which not all runs agree; all others would only be in the way."""
    values = [values_of(run) for run in runs]
    names = dict.fromkeys(name for one in values for name in one)
    rows = [(name.removeprefix("settings.").replace("_", " "), [one.get(name) for one in values]) for name in names]
    return [(name, row) for name, row in rows if any(value != row[0] for value in row[1:])]
