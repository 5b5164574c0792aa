"""Change a person's own account: profile and signed-in browsers."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.http import HttpRequest

from optimizer.events.sockets import recheck_access
from optimizer.models import SignIn, User

BROWSER_CHARS = 200


def do_change_profile(user: User, first_name: str, last_name: str, email: str) -> User:
    """Set the name that others see and the address for mail. Raises ValidationError for a malformed address."""
    if email:
        validate_email(email)
    user.first_name, user.last_name, user.email = first_name.strip()[:150], last_name.strip()[:150], email[:254]
    user.save(update_fields=["first_name", "last_name", "email"])
    return user


def do_record_sign_in(request: HttpRequest, user: User) -> None:
    """Record the browser that has just signed in."""
    # A session gets its key when it is first saved, which is otherwise after the view has returned.
    if not request.session.session_key:
        request.session.save()
    SignIn.objects.update_or_create(
        key=str(request.session.session_key),
        defaults={
            "user": user,
            "address": request.META.get("REMOTE_ADDR") or None,
            # PostgreSQL text cannot hold NUL, and a client may send one.
            "browser": request.META.get("HTTP_USER_AGENT", "")[:BROWSER_CHARS].replace("\x00", ""),
        },
    )


def do_end_sign_in(user: User, sign_in: SignIn) -> None:
    """Sign out one of the person's browsers and close its sockets. Raises ValidationError for another person's."""
    if sign_in.user_id != user.pk:
        raise ValidationError("That is not yours.")
    with transaction.atomic():
        sign_in.end()
        # Open sockets authenticated when they connected and would otherwise stay open.
        recheck_access(user.pk)


def do_end_other_sign_ins(user: User, key: str | None) -> int:
    """Sign out every browser except the one with this session key, and return how many."""
    others = [row for row in SignIn.living_of(user) if row.key != key]
    with transaction.atomic():
        for row in others:
            row.end()
        recheck_access(user.pk)
    return len(others)
