"""Forms of a person's own account."""

from __future__ import annotations

from django import forms

from optimizer.models import User


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # Django does not subscript it
    """What others see, and where mail goes."""

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]
        help_texts = {"email": "Where digests of your notifications go, if this installation sends mail."}
