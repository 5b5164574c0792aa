"""Limit how many requests a token makes, for the API and for the MCP server, which asks the API.

Counts are those of a minute of the clock, in the cache that all web processes share. While Redis is away each process
counts for itself, as for sign-ins.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.core.cache import cache

WINDOW_S = 60


class TooManyRequestsError(Exception):
    """Report that a token has used up its requests of this minute. `retry_after_s` is what is left of the minute."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(
            f"This token makes too many requests: at most {settings.API_RATE} a minute. "
            f"Try again in {retry_after_s} s."
        )
        self.retry_after_s = retry_after_s


def counted(key: str, kept_s: int) -> int:
    """Count once more under a key of the cache, which forgets it so long after the first time; return the count."""
    cache.add(key, 0, kept_s)
    try:
        return cache.incr(key)
    except ValueError:  # forgotten between both
        cache.add(key, 1, kept_s)
        return 1


def count_request(token_id: int) -> None:
    """Count a request of the token. Raises TooManyRequestsError beyond the rate of the installation; 0 is none."""
    if not settings.API_RATE:
        return
    now = int(time.time())
    key = f"api-rate/{token_id}/{now // WINDOW_S}"
    # Kept for a second window, so that a clock that is a little behind still finds it.
    if counted(key, 2 * WINDOW_S) > settings.API_RATE:
        raise TooManyRequestsError(WINDOW_S - now % WINDOW_S)
