"""The content security policy: scripts and styles only from files of this origin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

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

Response = HttpResponse | Awaitable[HttpResponse]


class ContentSecurityPolicyMiddleware:
    """Adds the policy to every answer that has none of its own. Works for sync and async views alike."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Response]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Response:
        """Answer, with the policy."""
        if self.is_async:
            return self._answer_later(request)
        response = self.get_response(request)
        assert isinstance(response, HttpResponse | object)
        return with_policy(response)  # type: ignore[arg-type]

    async def _answer_later(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        return with_policy(await response)  # type: ignore[misc]


def with_policy(response: HttpResponse) -> HttpResponse:
    """The same response, with the policy unless it has one."""
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response
