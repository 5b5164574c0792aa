"""The content security policy: scripts and styles only from files of this origin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

# SHA-256 of the empty text. plotly.js adds an empty <style> and fills it through the CSSOM, which the policy does
# not govern; allowing empty inline styles allows that and nothing that could carry anything.
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {EMPTY_STYLE}",
        "img-src 'self' data: blob:",  # plotly's icons and its picture download
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

GetResponse = Callable[[HttpRequest], HttpResponse]
GetResponseLater = Callable[[HttpRequest], Awaitable[HttpResponse]]


@sync_and_async_middleware
def content_security_policy(get_response: GetResponse | GetResponseLater) -> GetResponse | GetResponseLater:
    """Middleware that adds the policy to every answer that has none of its own."""
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
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response
