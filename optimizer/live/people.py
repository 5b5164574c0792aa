"""Saying something to one person's sockets, whichever page they look at."""

from __future__ import annotations

from django.db import transaction

from optimizer.live.publish import publish


def group_of_person(user_id: int) -> str:
    """The channel group of a person's sockets."""
    return f"person.{user_id}"


def recheck(user_id: int) -> None:
    """After the commit: what the person may see has changed; their sockets ask again, and close if they must."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.recheck"}))


def news(user_id: int) -> None:
    """After the commit: the number of unread notifications has changed."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.news"}))
