"""Confirm the person's identity before changes that would hand an account over.

They enter the password again, or a code. People who have neither, because only the company signs them in, sign in
there again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from allauth.account import app_settings
from allauth.account import views as allauth
from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from optimizer.views.account import towards_company
from optimizer.views.signed_in import user_of

View = Callable[..., HttpResponseBase]


def let_in_lately(request: HttpRequest) -> bool:
    """Return True where the company signed this session in within allauth's timeout (five minutes)."""
    records = get_authentication_records(request, user_of(request))
    times = [row["at"] for row in records if row.get("method") == "socialaccount"]
    return bool(times) and time.time() - max(times) < app_settings.REAUTHENTICATION_TIMEOUT


@login_required
def confirm(request: HttpRequest) -> HttpResponseBase:
    """Show the page that asks for confirmation in a way that this person can give."""
    if get_reauthentication_flows(user_of(request)) or not settings.OIDC_SERVER:
        answer: HttpResponseBase = allauth.reauthenticate(request)
        return answer
    back = request.GET.get("next", "")
    # An open redirect would let a link on this site lead to a phishing page.
    safe = url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure())
    context = {"next": back if safe else reverse("profile")}
    return towards_company(render(request, "account/confirm_company.html", context))


def after_company(view: View) -> View:
    """Require a recent company sign-in from people without a password and second factor.

    Allauth lets them through without a question, so a session that was left open would suffice to lock its owner out.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user
        if user.is_authenticated and not get_reauthentication_flows(user) and not let_in_lately(request):
            return redirect(f"{reverse('account_reauthenticate')}?{urlencode({'next': request.path})}")
        return view(request, *args, **kwargs)

    return guarded
