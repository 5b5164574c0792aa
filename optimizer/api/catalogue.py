"""Serve problems, targets and strategies."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router, Schema

from optimizer.api.auth import caller, needs
from optimizer.models import Problem, Target, TokenScope
from optimizer.search import STRATEGIES
from runners.targets import TARGETS

router = Router(tags=["catalogue"], auth=needs(TokenScope.READ))


class ProblemOut(Schema):
    """Describe a problem and its newest version. `team` is the only one that sees it, null: everybody does."""

    slug: str
    title: str
    origin: str
    team: str | None
    versions: list[int]
    languages: list[str]
    description: str


class TargetOut(Schema):
    """Describe a kind of hardware: its peaks, which are upper bounds, and their sources."""

    key: str
    title: str
    family: str
    peak_flops: dict[str, float]
    bandwidth: float | None
    sources: list[str]


class StrategyOut(Schema):
    """Describe a strategy and the JSON schema of its settings."""

    name: str
    title: str
    needs_model: bool
    settings: dict[str, Any]


@router.get("/problems", response=list[ProblemOut])
def list_problems(request: HttpRequest) -> Any:
    """List the problems of everybody and of the caller's teams."""
    seen = Problem.objects.visible_to(caller(request)).select_related("team").prefetch_related("versions")
    return [_problem(row) for row in seen.order_by("slug")]


@router.get("/problems/{slug}", response=ProblemOut)
def read_problem(request: HttpRequest, slug: str) -> Any:
    """Return one problem."""
    seen = Problem.objects.visible_to(caller(request)).select_related("team").prefetch_related("versions")
    return _problem(get_object_or_404(seen, slug=slug))


@router.get("/targets", response=list[TargetOut])
def list_targets(request: HttpRequest) -> Any:
    """List all targets."""
    return [_target(row) for row in Target.objects.order_by("key")]


@router.get("/strategies", response=list[StrategyOut])
def list_strategies(request: HttpRequest) -> Any:
    """List all strategies."""
    return [
        {"name": name, "title": one.title, "needs_model": one.needs_model,
         "settings": one.Settings.model_json_schema()}
        for name, one in STRATEGIES.items()
    ]  # fmt: skip


def _problem(problem: Problem) -> dict[str, Any]:
    versions = sorted(problem.versions.all(), key=lambda version: -version.number)
    return {
        "slug": problem.slug,
        "title": problem.title,
        "origin": problem.origin,
        "team": problem.team.slug if problem.team else None,
        "versions": [version.number for version in versions],
        "languages": versions[0].languages if versions else [],
        "description": versions[0].description if versions else "",
    }


def _target(row: Target) -> dict[str, Any]:
    facts = TARGETS.get(row.key)
    return {
        "key": row.key,
        "title": row.title,
        "family": facts.family if facts else "",
        "peak_flops": facts.peak_flops if facts else {},
        "bandwidth": facts.bandwidth if facts else None,
        "sources": list(facts.sources) if facts else [],
    }
