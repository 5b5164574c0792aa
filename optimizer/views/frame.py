"""Provide what the frame of every page shows about the person: their teams and the number of unread notifications.

It takes one query, and only on pages that use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, JSONObject
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from optimizer.models import Notification, Run, Team, User

CURRENT_TEAM = "team"


@dataclass(frozen=True)
class Frame:
    """Hold `teams` as {"slug", "name"}, `current` (one of their slugs, or "" for all) and `unread` notifications."""

    teams: tuple[dict[str, str], ...] = ()
    current: str = ""
    unread: int = 0


def frame(request: HttpRequest) -> dict[str, Any]:
    """Provide the frame, and the command of this installation, to templates, as a context processor."""
    # Lazy: fragments and downloads do not show the frame and should not pay for its query.
    return {"frame": SimpleLazyObject(lambda: frame_of(request)), "site_command": settings.SITE_COMMAND}


def frame_of(request: HttpRequest) -> Frame:
    """Read the frame."""
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return Frame()
    teams = Team.objects.filter(memberships__user=OuterRef("pk")).order_by("name")
    unread = Notification.objects.filter(user=OuterRef("pk"), read_at=None).order_by().values("user")
    found = User.objects.filter(pk=user.pk).values_list(
        ArraySubquery(teams.values(as_json=JSONObject(slug="slug", name="name"))),
        # A subquery that counts no rows returns NULL.
        Coalesce(Subquery(unread.annotate(n=Count("pk")).values("n")), 0),
    )
    mine, count = found.get()
    current = request.session.get(CURRENT_TEAM, "")
    return Frame(tuple(mine), current if any(team["slug"] == current for team in mine) else "", count)


def in_current_team(request: HttpRequest, runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs of the team to which the person has switched, or all runs where they have not."""
    current = request.session.get(CURRENT_TEAM, "")
    return runs.filter(team__slug=current, team__memberships__user=request.user.pk) if current else runs
