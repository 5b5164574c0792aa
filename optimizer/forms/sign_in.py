"""Define the sign-in form."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from optimizer import throttle


class SignInForm(AuthenticationForm):
    """Check name and password, with a pause after too many failures.

    Wrong names and wrong passwords get the same message, so that accounts cannot be guessed.
    """

    error_messages = {
        "invalid_login": "Name or password is wrong. Mind upper and lower case.",
        "inactive": "This account is switched off.",
        "wait": "Too many failed attempts. Try again in a quarter of an hour.",
    }

    def clean(self) -> dict[str, Any]:
        """Authenticate. Raises ValidationError."""
        request = cast(HttpRequest, self.request)
        username = str(self.cleaned_data.get("username", ""))
        # Before the password is checked, or guessing could continue during the pause.
        if throttle.must_wait(request, username):
            raise ValidationError(self.error_messages["wait"], code="wait")
        try:
            cleaned = super().clean()
        except ValidationError:
            throttle.count_failure(request, username)
            raise
        throttle.forget_failures(request, username)
        return cleaned
