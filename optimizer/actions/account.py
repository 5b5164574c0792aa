"""Change a person's own account: profile and signed-in browsers."""

from __future__ import annotations

from allauth.usersessions.models import UserSession
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from optimizer.events.sockets import recheck_access
from optimizer.models import User


def do_change_profile(user: User, first_name: str, last_name: str, email: str) -> User:
    """Set the name that others see and the address for mail. Raises ValidationError for a malformed address."""
    if email:
        validate_email(email)
    user.first_name, user.last_name, user.email = first_name.strip()[:150], last_name.strip()[:150], email[:254]
    user.save(update_fields=["first_name", "last_name", "email"])
    return user


def do_end_session(user: User, session: UserSession) -> None:
    """Sign out one of the person's browsers and close its sockets. Raises ValidationError for another person's."""
    if session.user_id != user.pk:
        raise ValidationError("This is not your session.")
    _end(user, [session])


def do_end_other_sessions(user: User, key: str | None) -> int:
    """Sign out every browser except the one with this session key, and return how many."""
    others = [row for row in UserSession.objects.purge_and_list(user) if row.session_key != key]
    _end(user, others)
    return len(others)


def _end(user: User, sessions: list[UserSession]) -> None:
    with transaction.atomic():
        for session in sessions:
            session.end()
        # Open sockets authenticated when they connected and would otherwise stay open.
        recheck_access(user.pk)
