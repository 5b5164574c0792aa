"""Define the content security policy: scripts and styles only from files of this origin."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from kernelsci_site.environment import origin


def digest(text: str) -> str:
    """Return the hash by which a policy allows one exact inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# What plotly.js 4.1 (plotly 7.1) writes inline, word for word; everything else it sets through the CSSOM, which a
# policy does not govern. A chart drawn in tests/site/test_content_security.py shows when an upgrade changes them.
RENDERINGS = (
    "optimizeSpeed -moz-crisp-edges -o-crisp-edges -webkit-optimize-contrast"
    " optimize-contrast crisp-edges pixelated"
)
PIXELATED = "".join(f"image-rendering: {value}; " for value in RENDERINGS.split(" "))
PLOTLY_ATTRIBUTES = [digest(text) for text in ("", "font-weight:bold", "font-style:italic", PIXELATED)]
PLOTLY_ELEMENTS = [
    digest(""),  # an empty sheet, filled through the CSSOM
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",  # the style of maps, added whether or not there is one
]

_REST = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {' '.join(PLOTLY_ELEMENTS)}",
        f"style-src-attr 'unsafe-hashes' {' '.join(PLOTLY_ATTRIBUTES)}",
        "img-src 'self' data: blob:",  # plotly's icons and its picture download
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
POLICY = f"{_REST}; form-action 'self'"

GetResponse = Callable[[HttpRequest], HttpResponse]
GetResponseLater = Callable[[HttpRequest], Awaitable[HttpResponse]]


def policy_towards(server: str) -> str:
    """Return the policy of a page whose forms lead to a company's sign-in at `server`."""
    # A form is redirected there, and perhaps on to whoever really knows the people; the directive governs every step.
    return f"{_REST}; form-action 'self' https: {origin(server)}"


@sync_and_async_middleware
def content_security_policy(get_response: GetResponse | GetResponseLater) -> GetResponse | GetResponseLater:
    """Add the policy to every response that has none of its own, as a middleware."""
    if iscoroutinefunction(get_response):
        return _policy_later(cast(GetResponseLater, get_response))
    answer = cast(GetResponse, get_response)

    def middleware(request: HttpRequest) -> HttpResponse:
        return _with_policy(answer(request))

    return middleware


def _policy_later(get_response: GetResponseLater) -> GetResponseLater:
    async def middleware(request: HttpRequest) -> HttpResponse:
        return _with_policy(await get_response(request))

    return middleware


def _with_policy(response: HttpResponse) -> HttpResponse:
    # A view may set a stricter policy, as downloads do, or one that allows the company's sign-in.
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response
