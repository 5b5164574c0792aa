"""Create notifications: one row per person and cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from optimizer.events.sockets import announce_unread
from optimizer.models import Notification, NotificationChoice, NotificationKind, Run, User
from optimizer.queries.notifications import wanted_of


@dataclass(frozen=True)
class NewNotification:
    """Describe one piece of news. `key` names the cause, so that nobody is notified of it twice; `link` is a path."""

    kind: NotificationKind
    key: str
    text: str
    link: str
    run: Run | None = None
    actor: User | None = None


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


def _row(person: User, new: NewNotification) -> Notification | None:
    # A mention must not reveal a private run to somebody who cannot see it.
    if new.run is not None and not Run.objects.visible_to(person).filter(pk=new.run.pk).exists():
        return None
    kind = new.kind
    wanted = wanted_of(kind, NotificationChoice.objects.filter(user=person, kind=kind.value).first())
    if not wanted.in_app and not wanted.by_mail:
        return None
    return Notification(
        user=person, kind=kind.value, key=new.key[:120], run=new.run, actor=new.actor, text=new.text[:300],
        link=new.link[:300], by_mail=wanted.by_mail,
    )  # fmt: skip
