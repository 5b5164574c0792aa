"""Whose request it is behind proxies. Each proxy appends the address that it was called from to `X-Forwarded-For`;
whatever stands before the entries of our own proxies was written by the caller and is worth nothing. So with `count`
proxies of ours the caller is the `count`-th entry from the right (MDN, X-Forwarded-For, "Selecting an IP address").
Daphne's own `--proxy-headers` takes the leftmost, which anybody can write.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from kernelsci_site.sockets import Application

FORWARDED_FOR = b"x-forwarded-for"


def behind_proxies(application: Application, count: int) -> Application:
    """The application, with the caller's own address as `client` of pages and sockets. With `count` 0, and where the
    header has too few entries or no address, the address stays that of whoever is connected."""

    async def told_the_caller(scope: Any, receive: Any, send: Any) -> None:
        caller = caller_of(scope.get("headers", []), count) if count else None
        await application({**scope, "client": (caller, 0)} if caller else scope, receive, send)

    return told_the_caller


def caller_of(headers: list[tuple[bytes, bytes]], count: int) -> str | None:
    """The address that the outermost of `count` proxies was called from, in its usual spelling."""
    lines = b",".join(value for name, value in headers if name == FORWARDED_FOR)
    entries = [entry.strip() for entry in lines.decode("latin-1").split(",")]
    if len(entries) < count:
        return None
    try:
        return str(ipaddress.ip_address(entries[-count]))
    except ValueError:
        return None
