"""Show leaderboards of our own measurements beside published figures."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.models import Problem, Target
from optimizer.queries.leaderboard import boards_for, bounds_for, leaders_of, published_for, published_suites
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
    """Show one problem on one target, in one version, since other versions have other cases."""
    problem, target = get_object_or_404(Problem, slug=slug), get_object_or_404(Target, key=key)
    numbers = list(problem.versions.order_by("-number").values_list("number", flat=True))
    wanted = parse_whole_number(request.GET.get("version"))
    version = wanted if wanted in numbers else numbers[0]
    context = {
        "problem": problem,
        "target": target,
        "versions": numbers,
        "version": version,
        "leaders": leaders_of(user_of(request), problem, target, version),
        "published": published_for(problem.slug, target.key),
        "bounds": bounds_for(problem.slug, target.key),
    }
    return render(request, "leaderboards/page.html", context)
