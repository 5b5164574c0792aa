"""Provide the person behind a request with its type."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest

from optimizer.models import User


def user_of(request: HttpRequest) -> User:
    """Return the signed-in person. Call only behind `login_required`."""
    return cast(User, request.user)
