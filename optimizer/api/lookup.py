"""Serve search, leaderboards and reports."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from ninja import Router, Schema

from optimizer.access import access_run
from optimizer.api.auth import caller, needs
from optimizer.models import Problem, Target, TokenScope
from optimizer.queries.fulltext import MAX_TEXT, SOURCES, search
from optimizer.queries.leaderboard import leaders_of, published_for
from optimizer.reports.files import report_attachment

router = Router(tags=["lookup"], auth=needs(TokenScope.READ))


class HitOut(Schema):
    """Describe a search result."""

    kind: str
    title: str
    where: str
    url: str
    excerpt: str


class LeaderOut(Schema):
    """Describe the best kernel of one run. `time_us` is the geometric mean of the medians of all cases.

    The rank is by the speedup over `baseline`; kernels whose intervals overlap share one. `is_seed` marks a kernel that
    no strategy wrote.
    """

    rank: int
    run: int
    kernel: int
    strategy: str
    language: str
    baseline: str
    is_seed: bool
    time_us: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None


class PublishedOut(Schema):
    """Describe a published figure with its hardware and source. It was not measured here."""

    label: str
    time_us: float
    hardware: str
    measure: str
    source: str


class LeaderboardOut(Schema):
    """Describe our leaders and published figures."""

    problem: str
    target: str
    leaders: list[LeaderOut]
    published: list[PublishedOut]


@router.get("/search", response=list[HitOut])
def look_up(request: HttpRequest, q: str, kind: str = "", limit: int = 8) -> Any:
    """Search problems, runs, kernels, hypotheses, findings and comments; the last word may be a prefix."""
    kinds = tuple(name for name in (source.kind for source in SOURCES) if name == kind) if kind else ()
    if kind and not kinds:
        raise Http404("There is no such kind.")
    found = search(caller(request), q[:MAX_TEXT], kinds, max(1, min(50, limit)))
    return [hit for hits in found.values() for hit in hits]


@router.get("/leaderboard", response=LeaderboardOut)
def leaderboard(request: HttpRequest, problem: str, target: str) -> Any:
    """Return the fastest kernels of the runs that the caller may see."""
    asked = get_object_or_404(Problem.objects.visible_to(caller(request)), slug=problem)
    on = get_object_or_404(Target, key=target)
    leaders = leaders_of(caller(request), asked, on)
    return {"problem": problem, "target": target, "leaders": leaders, "published": published_for(problem, target)}


@router.get("/runs/{int:run_id}/report.{form}")
def report(request: HttpRequest, run_id: int, form: str) -> HttpResponse:
    """Return the run's report as one file: `html` or `md`."""
    return report_attachment(access_run(caller(request), run_id, "view"), form)
