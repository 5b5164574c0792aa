"""Decide whether a socket may stay open.

The rows are read each time, because rights change and sessions end while people look.
"""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from optimizer.models import Run, User

NOT_SIGNED_IN, NO_SUCH_RUN, MALFORMED = 4401, 4404, 4400


async def refusal(scope: Any, run_id: int | None) -> int | None:
    """Return the close code for a person who is not signed in or may not see the run, or None."""
    user = scope.get("user")
    if user is None or not user.is_authenticated:
        return NOT_SIGNED_IN
    key = getattr(scope.get("session"), "session_key", None)
    return await _refusal(user.pk, key, run_id)


def person_of(scope: Any) -> User:
    """Return the person who was admitted."""
    user: User = scope["user"]
    return user


@database_sync_to_async
def _refusal(user_id: int, session_key: str | None, run_id: int | None) -> int | None:
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or (session_key is not None and not _is_signed_in(user, session_key)):
        return NOT_SIGNED_IN
    if run_id is None or Run.objects.visible_to(user).filter(pk=run_id).exists():
        return None
    return NO_SUCH_RUN


def _is_signed_in(user: User, session_key: str) -> bool:
    """Return whether the session still exists, is the person's, and was begun with the present password."""
    row = Session.objects.filter(session_key=session_key, expire_date__gt=timezone.now()).first()
    if row is None:
        return False
    # As Django's `get_user` does at every request; a socket has none after the first.
    session = row.get_decoded()
    begun_with = str(session.get(HASH_SESSION_KEY, ""))
    return session.get(SESSION_KEY) == str(user.pk) and constant_time_compare(
        begun_with, user.get_session_auth_hash()
    )
