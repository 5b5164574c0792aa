"""Signing in and out."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.forms.sign_in import SignInForm


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponseBase:
    """Name and password; after too many failures the form asks to wait."""
    view = LoginView.as_view(
        template_name="account/sign_in.html", authentication_form=SignInForm, redirect_authenticated_user=True
    )
    return view(request)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponseBase:
    """End the session."""
    return LogoutView.as_view()(request)
