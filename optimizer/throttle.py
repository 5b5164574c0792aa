"""Slow down the guessing of passwords.

After `FAILURES` failures within `WINDOW_S` seconds, an account must wait at that address, and after ten times as many
the whole address must wait. Counts are kept in the cache, or per web process while Redis is unavailable. A successful
sign-in resets the account's count.
"""

from __future__ import annotations

import hashlib

from django.core.cache import cache
from django.http import HttpRequest

FAILURES = 5
WINDOW_S = 900


def must_wait(request: HttpRequest, username: str) -> bool:
    """Return True while this account, or everybody, must wait at this address."""
    one, all_of_them = _keys(request, username)
    # Two limits: one stops guessing at a single account, the other trying one password on many accounts.
    return bool(cache.get(one, 0) >= FAILURES or cache.get(all_of_them, 0) >= 10 * FAILURES)


def count_failure(request: HttpRequest, username: str) -> None:
    """Count one wrong password."""
    for key in _keys(request, username):
        # `incr` keeps the expiry of the key, so the window starts at the first failure and is not extended by later
        # ones.
        cache.add(key, 0, WINDOW_S)
        cache.incr(key)


def forget_failures(request: HttpRequest, username: str) -> None:
    """Reset the account's count after the right password.

    The address's own count stays, because other accounts may be under attack from it.
    """
    cache.delete(_keys(request, username)[0])


def _keys(request: HttpRequest, username: str) -> tuple[str, str]:
    address = request.META.get("REMOTE_ADDR", "")
    # Hash the name: it may be long or contain characters that a cache key cannot.
    person = hashlib.sha256(username.casefold().encode()).hexdigest()[:32]
    return f"sign-in/{address}/{person}", f"sign-in/{address}"
