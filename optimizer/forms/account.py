"""Define the forms of a person's own account."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from django import forms
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpRequest

from optimizer.models import User


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # Django does not subscript it
    """Edit what others see of the person, and the address for mail."""

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]
        help_texts = {"email": "For notification digests."}


class PasswordForm(PasswordChangeForm):
    """Change the password. Guesses at the old one count as failed sign-ins."""

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(user, data)
        self.request = request

    def clean_old_password(self) -> str:
        """Return the old password. Raises ValidationError where it is wrong or was guessed at too often."""
        old = str(self.cleaned_data["old_password"])
        if get_adapter().authenticate(self.request, username=self.user.username, password=old) is None:
            raise forms.ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return old
