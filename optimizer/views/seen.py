"""Record when each signed-in browser was last seen, to about two minutes.

The cache keeps it from costing a write per request.
"""

from __future__ import annotations

from collections.abc import Callable

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from optimizer.models import SignIn

EVERY_S = 120
GetResponse = Callable[[HttpRequest], HttpResponse]


def record_last_seen(get_response: GetResponse) -> GetResponse:
    """Update the browser's row from time to time, as a middleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        key = request.session.session_key if hasattr(request, "session") else None
        # `add` succeeds once per interval, so only that request writes to the database.
        if key and request.user.is_authenticated and cache.add(f"seen/{key}", 1, EVERY_S):
            SignIn.objects.filter(key=key).update(seen_at=timezone.now())
        return response

    return middleware
