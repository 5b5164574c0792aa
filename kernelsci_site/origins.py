"""Open sockets for pages of this site only.

Channels' AllowedHostsOriginValidator compares host names and no ports, so a page of any other server on the same host
could open sockets with a visitor's cookies.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from kernelsci_site.sockets import Application

_PORTS = {"http": 80, "https": 443}


def for_own_pages(application: Application) -> Application:
    """Wrap the application so that it gets only sockets whose origin is the address that they are opened at."""
    denier: Any = WebsocketDenier.as_asgi()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", [])}
        own = is_own(headers.get(b"origin", ""), headers.get(b"host", ""))
        await (application if own else denier)(scope, receive, send)

    return guarded


def is_own(origin: str, host: str) -> bool:
    """Return whether a page of `origin` belongs to the site that is asked as `host`, or is trusted by the settings."""
    try:
        page = urlsplit(origin)
        page_port = page.port or _PORTS[page.scheme]
    except (ValueError, KeyError):
        return False
    if any(_trusts(trusted, page) for trusted in map(urlsplit, settings.CSRF_TRUSTED_ORIGINS)):
        return True
    domain, port = split_domain_port(host)
    # Without a port, the caller used that of its scheme. A proxy in front of us may have taken TLS off.
    same = page.hostname == domain.lower().strip("[]") and page_port == int(port or _PORTS[page.scheme])
    return same and validate_host(domain, settings.ALLOWED_HOSTS)


def _trusts(trusted: SplitResult, page: SplitResult) -> bool:
    """Return whether an entry of CSRF_TRUSTED_ORIGINS, such as `https://*.example.org`, covers a page."""
    return trusted.scheme == page.scheme and is_same_domain(page.netloc, trusted.netloc.lstrip("*"))
