"""Notify people: choose the recipients, respect their preferences, and record what they have read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction

from optimizer.events.sockets import announce_unread
from optimizer.models import Follow, Notification, NotificationChoice, NotificationKind, Run, User


@dataclass(frozen=True)
class NewNotification:
    """Describe one piece of news. `key` names the cause, so that nobody is notified of it twice; `link` is a path."""

    kind: NotificationKind
    key: str
    text: str
    link: str
    run: Run | None = None
    actor: User | None = None


@dataclass(frozen=True)
class Wanted:
    """Hold how a person is notified of one kind."""

    in_app: bool
    by_mail: bool


def do_notify(people: Iterable[User], new: NewNotification) -> list[Notification]:
    """Create a notification for each person who may see the run, wants this kind, and did not cause it themselves."""
    wanted = {person.pk: person for person in people if person.is_active and not person.is_service_account}
    if new.actor is not None:
        # Nobody is notified of what they did themselves.
        wanted.pop(new.actor.pk, None)
    rows = [row for person in wanted.values() if (row := _row(person, new)) is not None]
    # The unique key makes a repeated event harmless.
    Notification.objects.bulk_create(rows, ignore_conflicts=True)
    for row in rows:
        announce_unread(row.user_id)
    return rows


def do_follow(user: User, run: Run, follows: bool = True) -> None:
    """Start or stop following a run."""
    if follows:
        Follow.objects.get_or_create(user=user, run=run)
    else:
        Follow.objects.filter(user=user, run=run).delete()


def followers_of(run: Run) -> list[User]:
    """Return the people who follow the run."""
    return list(User.objects.filter(follows__run=run))


def choices_of(user: User) -> dict[NotificationKind, Wanted]:
    """Return the person's preferences for every kind."""
    rows = {row.kind: row for row in NotificationChoice.objects.filter(user=user)}
    return {kind: _wanted(kind, rows.get(kind.value)) for kind in NotificationKind}


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


def unread_of(user_id: int) -> int:
    """Return how many notifications the person has not read."""
    return Notification.objects.filter(user=user_id).unread().count()


def _row(person: User, new: NewNotification) -> Notification | None:
    # A mention must not reveal a private run to somebody who cannot see it.
    if new.run is not None and not Run.objects.visible_to(person).filter(pk=new.run.pk).exists():
        return None
    kind = new.kind
    wanted = _wanted(kind, NotificationChoice.objects.filter(user=person, kind=kind.value).first())
    if not wanted.in_app and not wanted.by_mail:
        return None
    return Notification(
        user=person, kind=kind.value, key=new.key[:120], run=new.run, actor=new.actor, text=new.text[:300],
        link=new.link[:300], by_mail=wanted.by_mail,
    )  # fmt: skip


def _wanted(kind: NotificationKind, row: NotificationChoice | None) -> Wanted:
    return Wanted(row.in_app, row.by_mail) if row else Wanted(True, kind.by_mail)
