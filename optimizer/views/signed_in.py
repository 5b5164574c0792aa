"""The person behind a request, typed."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest

from optimizer.models import User


def user_of(request: HttpRequest) -> User:
    """Who is signed in. Call only behind `login_required`."""
    return cast(User, request.user)
