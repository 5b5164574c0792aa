"""Notify people: choose the recipients, respect their preferences, and record what they have read."""

from __future__ import annotations

from django.db import transaction

from optimizer.events.sockets import announce_unread
from optimizer.models import Follow, Notification, NotificationChoice, NotificationKind, Run, User
from optimizer.queries.notifications import Wanted


def do_follow(user: User, run: Run, follows: bool = True) -> None:
    """Start or stop following a run."""
    if follows:
        Follow.objects.get_or_create(user=user, run=run)
    else:
        Follow.objects.filter(user=user, run=run).delete()


def do_choose(user: User, chosen: dict[NotificationKind, Wanted]) -> None:
    """Store the person's preferences."""
    with transaction.atomic():
        for kind, wanted in chosen.items():
            values = {"in_app": wanted.in_app, "by_mail": wanted.by_mail}
            NotificationChoice.objects.update_or_create(user=user, kind=kind.value, defaults=values)


def do_read(user: User, ids: list[int] | None = None) -> int:
    """Mark the person's notifications as read, or only those with the given ids. Return how many were unread."""
    mine = Notification.objects.filter(user=user)
    count = (mine if ids is None else mine.filter(pk__in=ids)).mark_read()
    if count:
        announce_unread(user.pk)
    return count
