"""A person's own account: name, address, sign-ins, tokens."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.http import HttpRequest

from optimizer.live.people import recheck
from optimizer.models import SignIn, User

BROWSER_CHARS = 200


def do_change_profile(user: User, first_name: str, last_name: str, email: str) -> User:
    """What others see of the person, and where mail goes. Raises ValidationError."""
    if email:
        validate_email(email)
    user.first_name, user.last_name, user.email = first_name.strip()[:150], last_name.strip()[:150], email[:254]
    user.save(update_fields=["first_name", "last_name", "email"])
    return user


def do_note_sign_in(request: HttpRequest, user: User) -> None:
    """Remember the browser that has just signed in."""
    if not request.session.session_key:
        request.session.save()
    SignIn.objects.update_or_create(
        key=str(request.session.session_key),
        defaults={
            "user": user,
            "address": request.META.get("REMOTE_ADDR") or None,
            "browser": request.META.get("HTTP_USER_AGENT", "")[:BROWSER_CHARS].replace("\x00", ""),
        },
    )


def do_end_sign_in(user: User, sign_in: SignIn) -> None:
    """Sign one of the person's browsers out, its sockets too. Raises ValidationError."""
    if sign_in.user_id != user.pk:
        raise ValidationError("That is not yours.")
    with transaction.atomic():
        sign_in.end()
        recheck(user.pk)


def do_end_other_sign_ins(user: User, key: str | None) -> int:
    """Sign every browser out but the one with that session key; how many."""
    others = [row for row in SignIn.living_of(user) if row.key != key]
    with transaction.atomic():
        for row in others:
            row.end()
        recheck(user.pk)
    return len(others)
