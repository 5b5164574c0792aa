"""Files to take away: never shown in place, never guessed at."""

from __future__ import annotations

from django.http import HttpResponse


def as_attachment(text: str, name: str, content_type: str) -> HttpResponse:
    """A download. `name` is our own: letters, digits, dot and dash."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    }
    return HttpResponse(text, content_type=f"{content_type}; charset=utf-8", headers=headers)
