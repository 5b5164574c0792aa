"""Count attempts in the shared cache, atomically: of many requests at once, only as many as allowed get through."""

from __future__ import annotations

import ipaddress
from hashlib import sha256

from django.core.cache import cache
from django.http import HttpRequest

from optimizer.api.throttle import counted

# Whoever has one IPv6 address has all those that share so many bits with it.
IPV6_PREFIX = 64


def caller_of(request: HttpRequest) -> str:
    """Return what to count a caller by: the IPv4 address, or the network of the IPv6 address."""
    given = str(request.META.get("REMOTE_ADDR") or "")
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        return given
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))
    return given


def take_attempt(action: str, source: str, most: int, window_s: int) -> bool:
    """Count an attempt of `source`, and return whether it is among the `most` of the present window.

    The window begins with the first attempt. Attempts beyond the limit do not prolong it.
    """
    return counted(_key(action, source), window_s) <= most


def give_back(action: str, source: str) -> None:
    """Take back an attempt that was none, such as one that succeeded."""
    try:
        cache.incr(_key(action, source), -1)
    except ValueError:
        return


def _key(action: str, source: str) -> str:
    # A digest, because caches limit the characters and length of keys.
    return f"attempts:{action}:{sha256(source.encode()).hexdigest()[:32]}"
