"""Who a command acts for."""

from __future__ import annotations

from django.core.management.base import CommandError

from optimizer.models import User


def acting_user(name: str | None) -> User:
    """The person of that name, by default the first administrator. Raises CommandError."""
    people = User.objects.filter(username=name) if name else User.objects.filter(is_superuser=True, is_active=True)
    found = people.order_by("pk").first()
    if found is None:
        raise CommandError(f"there is no user {name}" if name else "there is no administrator; name a --user")
    return found
