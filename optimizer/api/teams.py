"""Serve the caller's teams, their members and their audit log."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema

from optimizer.access import access_team
from optimizer.api.auth import caller, needs
from optimizer.api.paging import Page, Window, newest_first, page_of
from optimizer.models import AuditAction, AuditEntry, Membership, TeamRole, TokenScope

router = Router(tags=["teams"], auth=needs(TokenScope.READ))


class TeamOut(Schema):
    """Describe a team, the caller's role in it, and its rules for releases."""

    slug: str
    name: str
    role: str
    approvals_needed: int
    rerun_needed: bool


class MemberOut(Schema):
    """Describe a member of a team."""

    username: str
    role: str
    is_service_account: bool
    since: dt.datetime

    @staticmethod
    def resolve_username(row: Membership) -> str:
        """Return the name by which the member is mentioned."""
        return row.user.get_username()

    @staticmethod
    def resolve_is_service_account(row: Membership) -> bool:
        """Return whether the member is a program."""
        return row.user.is_service_account

    @staticmethod
    def resolve_since(row: Membership) -> dt.datetime:
        """Return when the member joined."""
        return row.created_at


class EntryOut(Schema):
    """Describe one entry of the audit log: who did what to what. The names are those of that moment."""

    id: int
    at: dt.datetime
    action: str
    actor_id: int | None
    actor_name: str
    team_id: int | None
    run_id: int | None
    subject: str
    details: dict[str, Any]


@router.get("", response=list[TeamOut], summary="The caller's teams, by name")
def list_teams(request: HttpRequest) -> Any:
    """List the teams in which the caller has a role."""
    mine = Membership.objects.filter(user=caller(request)).select_related("team").order_by("team__name")
    plain = ("slug", "name", "approvals_needed", "rerun_needed")
    return [{name: getattr(row.team, name) for name in plain} | {"role": row.role} for row in mine]


@router.get("/{slug:slug}/members", response=Page[MemberOut], summary="Members of a team")
def list_members(request: HttpRequest, slug: str, window: Query[Window]) -> Any:
    """List members in the order in which they joined. Only owners see service accounts."""
    team = access_team(caller(request), slug)
    rows = team.memberships.select_related("user").order_by("pk")
    owns = caller(request).role_in(team) == TeamRole.OWNER
    return page_of(rows if owns else rows.filter(user__is_service_account=False), window, "pk")


@router.get("/{slug:slug}/log", response=Page[EntryOut], summary="Audit log of a team, newest first")
def list_log(request: HttpRequest, slug: str, window: Query[Window], action: AuditAction | None = None) -> Any:
    """List the audit log for owners, with the columns of the export. Reading it is not logged."""
    entries = AuditEntry.objects.of_team(access_team(caller(request), slug, TeamRole.OWNER))
    return newest_first(entries.filter(action=action) if action else entries, window)
