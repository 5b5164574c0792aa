"""Sign people in through the company's OpenID Connect server.

The flow is django-allauth's. This module adds what it lacks: a readable page when that server is unavailable or does
not speak OpenID Connect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import requests
from allauth.socialaccount import views as socialaccount
from allauth.socialaccount.providers.openid_connect import views as allauth
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from optimizer.views.account import towards_company

AWAY = (
    "The company's sign-in cannot be reached, or its address is not that of an OpenID Connect server. Try again in a"
    " while; the administrator finds the reason in the log."
)
logger = logging.getLogger(__name__)
View = Callable[..., HttpResponse]


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Redirect to the company's server."""
    return _in_words(allauth.login, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Handle the return from the company's server, with a code or a refusal."""
    return _in_words(allauth.callback, request, provider_id)


@login_required
def connections(request: HttpRequest) -> HttpResponseBase:
    """Show whether the person's account is connected to the company's, with a button to change that."""
    return towards_company(socialaccount.connections(request))


def _in_words(view: View, request: HttpRequest, provider_id: str) -> HttpResponse:
    """Turn errors outside of allauth's own handling (no answer, no JSON, missing endpoints) into a page."""
    try:
        return view(request, provider_id)
    except (requests.RequestException, KeyError, ValueError) as error:
        logger.exception(
            "OIDC_SERVER=%s does not answer as an OpenID Connect server: %r", settings.OIDC_SERVER, error
        )
        return render(request, "socialaccount/authentication_error.html", {"reason": AWAY}, status=503)
