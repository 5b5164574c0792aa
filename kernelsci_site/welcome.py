"""Provide the first sign-in: an administrator created at the first start, and a link that works once.

A link is a file in `var/welcome` named after the hash of its token. Redeeming it means deleting that file, which only
one request can do.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from kernelsci_site.services.var import Var
from optimizer.models import User

LINK_LIVES_S = 3600
ADMINISTRATOR = "admin"


@sensitive_variables("password")
def ensure_administrator() -> tuple[User, str | None]:
    """Return an active administrator, and the password if the account was created now."""
    found = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if found is not None:
        return found, None
    password = secrets.token_urlsafe(12)
    made = get_user_model().objects.create_superuser(ADMINISTRATOR, password=password)
    return made, password


def make_link(var: Var, user: User) -> str:
    """Return a path that signs `user` in once within the hour, and delete older unused links."""
    folder = var.folder("welcome")
    # A link in an old terminal or log must not work after a restart.
    for old in folder.iterdir():
        old.unlink(missing_ok=True)
    token = secrets.token_urlsafe(32)
    path = folder / _hashed(token)
    path.touch(mode=0o600)
    path.write_text(f"{user.pk} {time.time() + LINK_LIVES_S:.0f}")
    return f"/welcome/{token}/"


def redeem(var: Var, token: str) -> User | None:
    """Return the person of a valid link once; afterwards, or when it has expired, None."""
    path = var.root / "welcome" / _hashed(token)
    user = _person_of(path)
    try:
        # Deleting is the claim: of two requests with the same link only one succeeds.
        path.unlink()
    except FileNotFoundError:
        return None
    return user


@never_cache
@require_http_methods(["GET", "POST"])
def welcome(request: HttpRequest, token: str) -> HttpResponse:
    """Ask with a button first: a GET changes nothing, so previews and prefetches do not use up the link."""
    if request.method == "GET":
        if _person_of(settings.VAR.root / "welcome" / _hashed(token)) is None:
            raise Http404
        return render(request, "site/welcome.html")
    user = redeem(settings.VAR, token)
    if user is None:
        raise Http404
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect(settings.LOGIN_REDIRECT_URL)


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _person_of(path: Path) -> User | None:
    try:
        pk, expires_at = path.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    if time.time() > float(expires_at):
        return None
    return User.objects.filter(pk=pk, is_active=True).first()
