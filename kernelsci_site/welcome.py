"""The first way in: an administrator made at the first start, and a link that signs in once from this machine.

A link is a file in `var/welcome` named after the hash of its token; redeeming it is deleting that file, which only
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
    """(an active administrator, the password if one was made just now)."""
    found = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if found is not None:
        return found, None
    password = secrets.token_urlsafe(12)
    made = get_user_model().objects.create_superuser(ADMINISTRATOR, password=password)
    return made, password


def make_link(var: Var, user: User) -> str:
    """A path that signs `user` in once within the hour. Older links that were never used end here."""
    folder = var.folder("welcome")
    for old in folder.iterdir():
        old.unlink(missing_ok=True)
    token = secrets.token_urlsafe(32)
    path = folder / _hashed(token)
    path.touch(mode=0o600)
    path.write_text(f"{user.pk} {time.time() + LINK_LIVES_S:.0f}")
    return f"/welcome/{token}/"


def redeem(var: Var, token: str) -> User | None:
    """The person of a fresh link, once; afterwards, or too late, None."""
    path = var.root / "welcome" / _hashed(token)
    user = _person_of(path)
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    return user


@never_cache
@require_http_methods(["GET", "POST"])
def welcome(request: HttpRequest, token: str) -> HttpResponse:
    """Asks with a button first: a GET changes nothing, so previews and prefetches do not use the link up."""
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
