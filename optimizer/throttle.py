"""Slows down guessing of passwords: after `FAILURES` failures within `WINDOW_S`, an account at one address, and an
address as a whole after ten times as many, has to wait. Counted in the cache, and by each web process for itself while
Redis is away; who signs in starts afresh."""

from __future__ import annotations

import hashlib

from django.core.cache import cache
from django.http import HttpRequest

FAILURES = 5
WINDOW_S = 900


def must_wait(request: HttpRequest, username: str) -> bool:
    """True while that account, or anybody, may not try again from this address."""
    one, all_of_them = _keys(request, username)
    return bool(cache.get(one, 0) >= FAILURES or cache.get(all_of_them, 0) >= 10 * FAILURES)


def note_failure(request: HttpRequest, username: str) -> None:
    """One more wrong password."""
    for key in _keys(request, username):
        cache.add(key, 0, WINDOW_S)
        cache.incr(key)


def forget_failures(request: HttpRequest, username: str) -> None:
    """The right password was given. The address's own count stays: other accounts may be under attack from it."""
    cache.delete(_keys(request, username)[0])


def _keys(request: HttpRequest, username: str) -> tuple[str, str]:
    address = request.META.get("REMOTE_ADDR", "")
    person = hashlib.sha256(username.casefold().encode()).hexdigest()[:32]
    return f"sign-in/{address}/{person}", f"sign-in/{address}"
