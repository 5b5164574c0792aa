"""Forms of a person's own account."""

from __future__ import annotations

import datetime as dt

from django import forms
from django.utils import timezone

from optimizer.models import TokenScope, User

LIFETIMES = {"30": "30 days", "90": "90 days", "365": "a year", "": "until it is revoked"}


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # Django does not subscript it
    """What others see, and where mail goes."""

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]
        help_texts = {"email": "Where digests of your notifications go, if this installation sends mail."}


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(max_length=100, help_text="What will use it.")
    scopes = forms.MultipleChoiceField(choices=TokenScope.choices, widget=forms.CheckboxSelectMultiple)
    days = forms.ChoiceField(choices=list(LIFETIMES.items()), initial="90", required=False, label="Valid for")

    @property
    def expires_at(self) -> dt.datetime | None:
        """When it ends; None is never."""
        days = self.cleaned_data["days"]
        return timezone.now() + dt.timedelta(days=int(days)) if days else None
