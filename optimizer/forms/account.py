"""Define the forms of a person's own account."""

from __future__ import annotations

from django import forms

from optimizer.models import User


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # Django does not subscript it
    """Edit what others see of the person, and the address for mail."""

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]
        help_texts = {"email": "Where digests of your notifications go, if this installation sends mail."}
