"""Telling people what concerns them: who is told, what they chose to hear, and what they have read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction

from optimizer.live.people import news
from optimizer.models import Follow, Notification, NotificationChoice, NotificationKind, Run, User


@dataclass(frozen=True)
class News:
    """Something to tell. `key` names the cause: who was told of it is not told again. `link` is a path."""

    kind: NotificationKind
    key: str
    text: str
    link: str
    run: Run | None = None
    actor: User | None = None


@dataclass(frozen=True)
class Wanted:
    """How a person hears of one kind."""

    in_app: bool
    by_mail: bool


def do_tell(people: Iterable[User], told: News) -> list[Notification]:
    """One row for everybody who may see the run, wants to hear of such things, and did not do it themselves."""
    wanted = {person.pk: person for person in people if person.is_active and not person.is_service_account}
    if told.actor is not None:
        wanted.pop(told.actor.pk, None)
    rows = [row for person in wanted.values() if (row := _row(person, told)) is not None]
    Notification.objects.bulk_create(rows, ignore_conflicts=True)
    for row in rows:
        news(row.user_id)
    return rows


def do_follow(user: User, run: Run, follows: bool = True) -> None:
    """Hear of the run from now on, or no more."""
    if follows:
        Follow.objects.get_or_create(user=user, run=run)
    else:
        Follow.objects.filter(user=user, run=run).delete()


def followers_of(run: Run) -> list[User]:
    """Who follows the run."""
    return list(User.objects.filter(follows__run=run))


def choices_of(user: User) -> dict[NotificationKind, Wanted]:
    """What the person hears of, for every kind."""
    rows = {row.kind: row for row in NotificationChoice.objects.filter(user=user)}
    return {kind: _wanted(kind, rows.get(kind.value)) for kind in NotificationKind}


def do_choose(user: User, chosen: dict[NotificationKind, Wanted]) -> None:
    """Remember what the person wants to hear of."""
    with transaction.atomic():
        for kind, wanted in chosen.items():
            values = {"in_app": wanted.in_app, "by_mail": wanted.by_mail}
            NotificationChoice.objects.update_or_create(user=user, kind=kind.value, defaults=values)


def do_read(user: User, ids: list[int] | None = None) -> int:
    """Mark the person's notifications as read, or only these; how many were unread."""
    mine = Notification.objects.filter(user=user)
    count = (mine if ids is None else mine.filter(pk__in=ids)).mark_read()
    if count:
        news(user.pk)
    return count


def unread_of(user_id: int) -> int:
    """How many the person has not read."""
    return Notification.objects.filter(user=user_id).unread().count()


def _row(person: User, told: News) -> Notification | None:
    if told.run is not None and not Run.objects.visible_to(person).filter(pk=told.run.pk).exists():
        return None
    kind = told.kind
    wanted = _wanted(kind, NotificationChoice.objects.filter(user=person, kind=kind.value).first())
    if not wanted.in_app and not wanted.by_mail:
        return None
    return Notification(
        user=person, kind=kind.value, key=told.key[:120], run=told.run, actor=told.actor, text=told.text[:300],
        link=told.link[:300], by_mail=wanted.by_mail,
    )  # fmt: skip


def _wanted(kind: NotificationKind, row: NotificationChoice | None) -> Wanted:
    return Wanted(row.in_app, row.by_mail) if row else Wanted(True, kind.by_mail)
