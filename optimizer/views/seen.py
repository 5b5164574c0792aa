"""Record when each signed-in browser was last seen, to about two minutes.

allauth's own middleware would write to the database at every request.
"""

from __future__ import annotations

from collections.abc import Callable

from allauth.usersessions.models import UserSession
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

EVERY_S = 120
GetResponse = Callable[[HttpRequest], HttpResponse]


def record_last_seen(get_response: GetResponse) -> GetResponse:
    """Create or update the browser's row from time to time, as a middleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        key = request.session.session_key if hasattr(request, "session") else None
        # `add` succeeds once per interval, so only that request writes to the database.
        if key and request.user.is_authenticated and cache.add(f"seen/{key}", 1, EVERY_S):
            known = UserSession.objects.filter(session_key=key)
            if not known.update(last_seen_at=timezone.now()):
                UserSession.objects.create_from_request(request)
        return response

    return middleware
