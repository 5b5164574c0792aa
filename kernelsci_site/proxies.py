"""Determine the caller's address behind proxies.

Each proxy appends the address of its caller to `X-Forwarded-For`. Whatever precedes the entries of our own proxies
was written by the caller and is worthless. With `count` proxies of ours, the caller is therefore the `count`-th entry
from the right (MDN, X-Forwarded-For, "Selecting an IP address"). Daphne's own `--proxy-headers` takes the leftmost
entry, which anybody can forge.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from kernelsci_site.sockets import Application

FORWARDED_FOR = b"x-forwarded-for"


def behind_proxies(application: Application, count: int) -> Application:
    """Wrap the application so that `client` is the caller's own address, for pages and sockets.

    With `count` 0, and where the header has too few entries or no address, it stays that of the direct peer.
    """

    async def told_the_caller(scope: Any, receive: Any, send: Any) -> None:
        caller = caller_of(scope.get("headers", []), count) if count else None
        await application({**scope, "client": (caller, 0)} if caller else scope, receive, send)

    return told_the_caller


def caller_of(headers: list[tuple[bytes, bytes]], count: int) -> str | None:
    """Return the address from which the outermost of `count` proxies was called, normalised, or None."""
    # A request may repeat the header; the values are one list in order (RFC 9110, section 5.3).
    lines = b",".join(value for name, value in headers if name == FORWARDED_FOR)
    entries = [entry.strip() for entry in lines.decode("latin-1").split(",")]
    if len(entries) < count:
        return None
    try:
        return str(ipaddress.ip_address(entries[-count]))
    except ValueError:
        return None
