"""Store the theme of a browser in a cookie, so that the server renders it immediately, without a flash."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

THEMES = {"system": "As the system", "light": "Light", "dark": "Dark", "contrast": "High contrast"}
COOKIE = "theme"
A_YEAR_S = 365 * 24 * 3600


def theme_of(request: HttpRequest) -> str:
    """Return the chosen theme, or `system` where none or an unknown one was chosen."""
    chosen = request.COOKIES.get(COOKIE, "system")
    return chosen if chosen in THEMES else "system"


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Store a theme and return to the page on which it was chosen."""
    response = redirect(_way_back(request))
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        # A cookie rather than a setting of the account, as it also applies before signing in.
        response.set_cookie(COOKIE, chosen, max_age=A_YEAR_S, samesite="Lax", secure=request.is_secure())
    return response


def _way_back(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()})
    return wanted if safe and wanted.startswith("/") else "/"
