"""Serve releases: request, release and withdraw kernels."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import Verb, access_kernel, access_run
from optimizer.actions.release import conditions_of, do_ask_release, do_release, do_withdraw_release
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, newest_first
from optimizer.models import Release, ReleaseState, TokenScope

router = Router(tags=["releases"], auth=needs(TokenScope.READ))
WRITE = needs(TokenScope.REVIEW)


class ReleaseIn(Body):
    """Name the kernel to release, and the reason."""

    run: int = Field(ge=0, lt=2**63)
    kernel: int = Field(ge=0, lt=2**31)
    note: str = Field(default="", max_length=300)


class ConditionOut(Schema):
    """Describe one condition of a release."""

    text: str
    is_met: bool


class ReleaseOut(Schema):
    """Describe one attempt to release a kernel; `conditions` are listed while it waits."""

    id: int
    run: int
    kernel: int
    problem: str
    target: str
    team: str
    state: str
    note: str
    asked_by: str | None
    asked_at: dt.datetime
    released_by: str | None
    released_at: dt.datetime | None
    superseded_by: int | None
    conditions: list[ConditionOut]


@router.get("", response=Page[ReleaseOut])
def list_releases(request: HttpRequest, window: Query[Window], state: ReleaseState | None = None) -> Any:
    """List releases, newest first."""
    rows = Release.objects.visible_to(caller(request)).with_kernel()
    page = newest_first(rows.filter(state=state) if state else rows, window)
    return {"items": [_out(row) for row in page["items"]], "next": page["next"]}


@router.post("", response={201: ReleaseOut, 422: Refusal}, auth=WRITE)
def ask_release(request: HttpRequest, body: ReleaseIn) -> Any:
    """Request a release: the kernel is measured once more, and the team's reviewers are notified."""
    kernel = access_kernel(caller(request), body.run, body.kernel, "comment")
    return Status(201, _again(do_ask_release(caller(request), kernel, body.note)))


@router.get("/{int:release_id}", response=ReleaseOut)
def read_release(request: HttpRequest, release_id: int) -> Any:
    """Return one release."""
    return _out(_release(request, release_id, "view"))


@router.post("/{int:release_id}/release", response={200: ReleaseOut, 422: Refusal}, auth=WRITE)
def release(request: HttpRequest, release_id: int) -> Any:
    """Release the kernel; 422 lists the unmet conditions."""
    return _again(do_release(caller(request), _release(request, release_id, "operate")))


@router.post("/{int:release_id}/withdraw", response={200: ReleaseOut, 422: Refusal}, auth=WRITE)
def withdraw(request: HttpRequest, release_id: int) -> Any:
    """Withdraw the release, as an operator or as the person who requested it."""
    row = _release(request, release_id, "comment")
    verb: Verb = "comment" if row.asked_by_id == caller(request).pk else "operate"
    return _again(do_withdraw_release(caller(request), _release(request, release_id, verb)))


def _release(request: HttpRequest, release_id: int, verb: Verb) -> Release:
    row = get_object_or_404(Release.objects.visible_to(caller(request)).with_kernel(), pk=release_id)
    access_run(caller(request), row.kernel.run_id, verb)
    return row


def _again(row: Release) -> dict[str, Any]:
    return _out(Release.objects.with_kernel().get(pk=row.pk))


def _out(row: Release) -> dict[str, Any]:
    run = row.kernel.run
    return {name: getattr(row, name) for name in ("state", "note", "asked_at", "released_at")} | {
        "id": row.pk,
        "run": run.pk,
        "kernel": row.kernel.number,
        "problem": run.problem_version.problem.slug,
        "target": run.target.key,
        "team": run.team.slug,
        "asked_by": row.asked_by.get_username() if row.asked_by else None,
        "released_by": row.released_by.get_username() if row.released_by else None,
        "superseded_by": row.superseded_by.number if row.superseded_by else None,
        "conditions": conditions_of(row) if row.state == ReleaseState.ASKED else [],
    }
