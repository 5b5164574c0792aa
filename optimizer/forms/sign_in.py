"""Define the sign-in form."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from django.contrib.auth.forms import AuthenticationForm


class SignInForm(AuthenticationForm):
    """Check name and password; allauth counts the failures and asks to wait after too many.

    Wrong names and wrong passwords get the same message, so that accounts cannot be guessed.
    """

    error_messages = {
        "invalid_login": "Wrong name or password. Both are case-sensitive.",
        "inactive": "This account is disabled.",
    }

    def clean(self) -> dict[str, Any]:
        """Authenticate. Raises ValidationError."""
        given = {name: self.cleaned_data.get(name) for name in ("username", "password")}
        if all(given.values()):
            self.user_cache = get_adapter().authenticate(self.request, **given)
            if self.user_cache is None:
                raise self.get_invalid_login_error()
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data
