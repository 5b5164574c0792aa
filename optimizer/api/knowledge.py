"""Serve findings, which agents read before they write. An edit is a new finding that supersedes the old one."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_team
from optimizer.actions.finding import FindingSupersededError, do_edit_finding, do_write_finding
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, newest_first
from optimizer.models import Finding, Problem, Target, TeamRole, TokenScope
from optimizer.queries.fulltext import findings_seen_by

router = Router(tags=["knowledge"], auth=needs(TokenScope.READ))
WRITE = needs(TokenScope.REVIEW)


class FindingOut(Schema):
    """Describe a finding, which applies where all of its scopes apply. It is current if `superseded_by_id` is null."""

    id: int
    kind: str
    title: str
    text: str
    origin: str
    source: str
    team: str | None
    target: str | None
    problem: str | None
    run_id: int | None
    superseded_by_id: int | None
    created_at: dt.datetime


class FindingEdit(Body):
    """Hold the new version of a finding."""

    title: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=50_000)
    source: str = Field(default="", max_length=400)


class FindingIn(FindingEdit):
    """Hold a finding of a team; without target and problem it applies everywhere."""

    team: str
    target: str = ""
    problem: str = ""


@router.get("", response=Page[FindingOut])
def list_findings(
    request: HttpRequest, window: Query[Window], target: str = "", problem: str = "", current: bool = True
) -> Any:
    """List findings, newest first; `current=false` includes superseded ones."""
    rows = findings_seen_by(caller(request)).select_related("team", "target", "problem")
    rows = rows.filter(target__key=target) if target else rows
    rows = rows.filter(problem__slug=problem) if problem else rows
    page = newest_first(rows.filter(superseded_by=None) if current else rows, window)
    return {"items": [_out(row) for row in page["items"]], "next": page["next"]}


@router.post("", response={201: FindingOut, 404: Refusal, 422: Refusal}, auth=WRITE)
def write_finding(request: HttpRequest, body: FindingIn) -> Any:
    """Add a finding to a team."""
    target = get_object_or_404(Target, key=body.target) if body.target else None
    seen = Problem.objects.visible_to(caller(request))
    problem = get_object_or_404(seen, slug=body.problem) if body.problem else None
    team = access_team(caller(request), body.team, TeamRole.REVIEWER)
    row = do_write_finding(
        caller(request), team, body.title, body.text, body.source, target=target, problem=problem
    )
    return Status(201, _out(row))


@router.get("/{int:finding_id}", response=FindingOut)
def read_finding(request: HttpRequest, finding_id: int) -> Any:
    """Return one finding, current or not."""
    return _out(_found(request, finding_id))


@router.put("/{int:finding_id}", response={200: FindingOut, 409: Refusal, 422: Refusal}, auth=WRITE)
def edit_finding(request: HttpRequest, finding_id: int, body: FindingEdit) -> Any:
    """Write the next version of a finding. Answers 409 where somebody else did it first."""
    row = _found(request, finding_id)
    try:
        return _out(do_edit_finding(caller(request), row, body.title, body.text, body.source))
    except FindingSupersededError as error:
        return Status(409, Refusal(detail=str(error)))


def _found(request: HttpRequest, finding_id: int) -> Finding:
    return get_object_or_404(
        findings_seen_by(caller(request)).select_related("team", "target", "problem"), pk=finding_id
    )


def _out(row: Finding) -> dict[str, Any]:
    plain = ("kind", "title", "text", "origin", "source", "run_id", "superseded_by_id", "created_at")
    return {name: getattr(row, name) for name in plain} | {
        "id": row.pk,
        "team": row.team.slug if row.team else None,
        "target": row.target.key if row.target else None,
        "problem": row.problem.slug if row.problem else None,
    }
