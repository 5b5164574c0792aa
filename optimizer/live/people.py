"""Send messages to all sockets of one person, whichever page they look at."""

from __future__ import annotations

from django.db import transaction

from optimizer.live.publish import publish


def group_of_person(user_id: int) -> str:
    """Return the channel group of a person's sockets."""
    return f"person.{user_id}"


def recheck_access(user_id: int) -> None:
    """Make the person's sockets check access again after commit, and close where it is lost."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.recheck"}))


def announce_unread(user_id: int) -> None:
    """Announce after commit that the number of unread notifications has changed."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.news"}))
