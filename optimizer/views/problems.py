"""Show problems and their fastest runs."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.charts.cost import axes_for
from optimizer.models import Problem, ProblemVersion, Run, Target, User
from optimizer.queries.cost import Cost, costs_of
from optimizer.queries.leaderboard import Leader, leaders_by_target
from optimizer.runs.history import open_version
from optimizer.text.whole_numbers import COUNT_DIGITS, parse_whole_number
from optimizer.views.safe_html import markdown
from optimizer.views.signed_in import user_of
from runners.problems.base import Problem as ReadProblem
from runners.problems.base import ProblemError, Purpose

LEADERS = 5


@login_required
@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """List all problems with their number of runs."""
    newest = ProblemVersion.objects.filter(problem=OuterRef("pk")).order_by("-number")
    counted = (
        Run.objects.filter(pk__in=Run.objects.visible_to(user_of(request)).order_by().values("pk"))
        .values_list("problem_version__problem")
        .annotate(n=Count("pk"))
    )
    runs = dict(counted)
    listed = (
        Problem.objects.visible_to(user_of(request))
        .annotate(
            newest_number=Subquery(newest.values("number")[:1]), languages=Subquery(newest.values("languages")[:1])
        )
        .order_by("title")
    )
    rows = [(problem, runs.get(problem.pk, 0)) for problem in listed]
    return render(request, "problems/list.html", {"rows": rows})


@login_required
@require_safe
def problem_page(request: HttpRequest, slug: str) -> HttpResponse:
    """Show description, cases, seeds and leaders of the newest version, or of `?version=`."""
    problem = get_object_or_404(Problem.objects.visible_to(user_of(request)).select_related("team"), slug=slug)
    versions = list(problem.versions.defer("bundle").order_by("-number"))
    version = get_object_or_404(problem.versions.defer("bundle"), number=_wanted(request, versions))
    boards = _boards(user_of(request), problem, version.number)
    context: dict[str, Any] = {
        "problem": problem,
        "version": version,
        "versions": versions,
        "description": markdown(version.description),
        "boards": boards,
        "cost_axes": _cost_axes(user_of(request), problem, version.number, boards),
        **_read(version),
    }
    return render(request, "problems/page.html", context)


def _cost_axes(
    user: User, problem: Problem, version: int, boards: list[tuple[Target, list[Leader]]]
) -> list[tuple[Cost, str]]:
    """Return the axes of the chart of costs, which shows the runs of the first board."""
    if not boards:
        return []
    target, leaders = boards[0]
    return axes_for(costs_of(user, problem, target, version, leaders[0].baseline))


def _wanted(request: HttpRequest, versions: list[ProblemVersion]) -> int:
    wanted = parse_whole_number(request.GET.get("version"), COUNT_DIGITS)
    newest = versions[0].number if versions else 0
    return newest if wanted is None else wanted


def _read(version: ProblemVersion) -> dict[str, Any]:
    try:
        problem = open_version(version.pk)
    except ProblemError as error:  # written by a version that read more; the stored text still shows
        return {"complaints": error.complaints}
    targets = list(Target.objects.order_by("title"))
    return {"read": problem, "cases": _cases(problem, targets), "seeds": problem.seeds}


def _cases(problem: ReadProblem, targets: list[Target]) -> list[dict[str, Any]]:
    """Return every case once, with the bytes that a call must move."""
    found: dict[tuple[Purpose, str], dict[str, Any]] = {}
    for target in targets:
        for purpose in Purpose:
            for case in problem.cases(target.key, purpose):
                if (purpose, case.name) not in found:
                    row = {"case": case, "purpose": purpose, "work": problem.work(case), "targets": {}}
                    found[purpose, case.name] = row
                found[purpose, case.name]["targets"] |= dict.fromkeys(case.targets)
    return sorted(found.values(), key=lambda row: list(Purpose).index(row["purpose"]))


def _boards(user: User, problem: Problem, version: int) -> list[tuple[Target, list[Leader]]]:
    """Return the first of each target's leaderboard, as its own page ranks them, the longest board first."""
    leaders = leaders_by_target(user, problem, version)
    targets = Target.objects.filter(pk__in=leaders).order_by("title")
    boards = [(target, leaders[target.pk][:LEADERS]) for target in targets]
    return sorted(boards, key=lambda board: -len(board[1]))
