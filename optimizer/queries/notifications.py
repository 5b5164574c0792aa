"""Read notifications, who wants which, and who follows a run."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.models import Notification, NotificationChoice, NotificationKind, Run, Team, User


@dataclass(frozen=True)
class Wanted:
    """Hold how a person is notified of one kind."""

    in_app: bool
    by_mail: bool


def followers_of(run: Run) -> list[User]:
    """Return the people who follow the run."""
    return list(User.objects.filter(follows__run=run))


def choices_of(user: User) -> dict[NotificationKind, Wanted]:
    """Return the person's preferences for every kind."""
    rows = {row.kind: row for row in NotificationChoice.objects.filter(user=user)}
    return {kind: wanted_of(kind, rows.get(kind.value)) for kind in NotificationKind}


def unread_of(user_id: int) -> int:
    """Return how many notifications the person has not read."""
    return Notification.objects.filter(user=user_id).unread().count()


def wanted_of(kind: NotificationKind, row: NotificationChoice | None) -> Wanted:
    """Return the stored preference, or the kind's default."""
    return Wanted(row.in_app, row.by_mail) if row else Wanted(kind.in_app, kind.by_mail)


def mentionable_names(team: Team) -> frozenset[str]:
    """Return the account names that can be mentioned in a team's discussions, case-folded."""
    return frozenset(name.casefold() for name in team.members.values_list("username", flat=True))
