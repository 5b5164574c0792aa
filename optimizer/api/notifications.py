"""What the caller should hear of, and what they have read of it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from optimizer.actions.notification import do_read
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.paging import MOST, Page, Window, newest_first
from optimizer.models import Notification, TokenScope

router = Router(tags=["notifications"], auth=needs(TokenScope.READ))


class NotificationOut(Schema):
    """One piece of news. `link` is a path of this site; `read_at` is null until it is read."""

    id: int
    kind: str
    text: str
    link: str
    run: int | None
    actor: str | None
    created_at: dt.datetime
    read_at: dt.datetime | None

    @staticmethod
    def resolve_run(row: Notification) -> int | None:
        """Its number."""
        return row.run_id

    @staticmethod
    def resolve_actor(row: Notification) -> str | None:
        """Who did it, by name; nobody where a run did."""
        return row.actor.get_username() if row.actor else None


class ReadIn(Body):
    """Which are read; null is all of them."""

    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(default=None, max_length=MOST)


class ReadOut(Schema):
    """How many were unread until now."""

    read: int


@router.get("", response=Page[NotificationOut], summary="What the caller should hear of, newest first")
def list_notifications(request: HttpRequest, window: Query[Window], unread: bool = False) -> Any:
    """The caller's own, about runs that they may still see; with `unread`, what they have not read."""
    rows = Notification.objects.readable_by(caller(request)).select_related("actor")
    return newest_first(rows.unread() if unread else rows, window)


@router.post("/read", response=ReadOut, auth=needs(TokenScope.RUNS), summary="Mark as read")
def read_notifications(request: HttpRequest, body: ReadIn) -> Any:
    """All of the caller's, or those named; other people's are left alone."""
    return {"read": do_read(caller(request), body.ids)}
