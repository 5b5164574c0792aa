"""Serve the caller's notifications."""

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
    """Describe a notification. `link` is a path on this site; `read_at` is null until it is read."""

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
        """Return the run's number."""
        return row.run_id

    @staticmethod
    def resolve_actor(row: Notification) -> str | None:
        """Return the name of the person who caused it, or null where a run did."""
        return row.actor.get_username() if row.actor else None


class ReadIn(Body):
    """List the notifications to mark as read; null means all of them."""

    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(default=None, max_length=MOST)


class ReadOut(Schema):
    """Count how many were unread."""

    read: int


@router.get("", response=Page[NotificationOut], summary="The caller's notifications, newest first")
def list_notifications(request: HttpRequest, window: Query[Window], unread: bool = False) -> Any:
    """List the caller's notifications about runs that they may still see; with `unread`, only unread ones."""
    rows = Notification.objects.readable_by(caller(request)).select_related("actor")
    return newest_first(rows.unread() if unread else rows, window)


@router.post("/read", response=ReadOut, auth=needs(TokenScope.RUNS), summary="Mark as read")
def read_notifications(request: HttpRequest, body: ReadIn) -> Any:
    """Mark the caller's notifications as read, all or those listed; other people's are left alone."""
    return {"read": do_read(caller(request), body.ids)}
