"""Show leaderboards of our own measurements beside published figures."""

from __future__ import annotations

from typing import get_args
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from optimizer.actions.ranking import TOP, do_retime_leaders, may_retime
from optimizer.charts import cost as charts
from optimizer.models import Problem, Target
from optimizer.queries.cost import Cost, costs_of
from optimizer.queries.leaderboard import (
    baselines_of,
    boards_for,
    bounds_for,
    leaders_of,
    published_for,
    published_suites,
)
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def leaderboards(request: HttpRequest) -> HttpResponse:
    """List every problem on every target that has been timed, and published comparisons of methods."""
    context = {"boards": boards_for(user_of(request)), "suites": published_suites()}
    return render(request, "leaderboards/list.html", context)


@login_required
@require_safe
def leaderboard(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Show one problem on one target, in one version and against one baseline: only those speedups compare."""
    problem, target, version, baseline = _asked(request, slug, key)
    user = user_of(request)
    baselines = baselines_of(user, problem, target, version)
    baseline = baseline if baseline in baselines else next(iter(baselines), "")
    leaders = leaders_of(user, problem, target, version, baseline)
    context = {
        "problem": problem,
        "target": target,
        "versions": list(problem.versions.order_by("-number").values_list("number", flat=True)),
        "version": version,
        "baselines": baselines,
        "baseline": baseline,
        "leaders": leaders,
        "may_retime": len(leaders) > 1 and may_retime(user, leaders),
        "cost_axes": charts.axes_for(costs_of(user, problem, target, version, baseline)),
        "top": TOP,
        "published": published_for(problem.slug, target.key),
        "bounds": bounds_for(problem.slug, target.key),
    }
    return render(request, "leaderboards/page.html", context)


@login_required
@require_safe
def leaderboard_cost(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Return what the runs of a leaderboard spent against their speedup as plotly JSON, against `?axis=`."""
    problem, target, version, baseline = _asked(request, slug, key)
    axis = request.GET.get("axis", "usd")
    if axis not in get_args(Cost):
        raise Http404
    user = user_of(request)
    baseline = baseline or next(iter(baselines_of(user, problem, target, version)), "")
    runs = costs_of(user, problem, target, version, baseline)
    figure = charts.cost(runs, axis, baseline.replace("_", " "))  # type: ignore[arg-type]
    return HttpResponse(figure.to_json(), content_type="application/json")


@login_required
@require_POST
def leaderboard_retime(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Time the top of the leaderboard together."""
    problem, target, version, baseline = _asked(request, slug, key)
    user = user_of(request)
    try:
        count = do_retime_leaders(user, leaders_of(user, problem, target, version, baseline))
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
    else:
        messages.success(
            request, f"{count} kernel{pluralize(count)} queued. The ranking follows when they are timed."
        )
    query = urlencode({"version": version, "baseline": baseline})
    return redirect(f"{reverse('leaderboard', args=[slug, key])}?{query}")


def _asked(request: HttpRequest, slug: str, key: str) -> tuple[Problem, Target, int, str]:
    """Return problem, target, version and baseline that an address or form names; the newest version by default."""
    problem = get_object_or_404(Problem.objects.visible_to(user_of(request)), slug=slug)
    target = get_object_or_404(Target, key=key)
    asked = request.POST if request.method == "POST" else request.GET
    numbers = list(problem.versions.order_by("-number").values_list("number", flat=True))
    wanted = parse_whole_number(asked.get("version"))
    return problem, target, wanted if wanted in numbers else numbers[0], asked.get("baseline", "")
