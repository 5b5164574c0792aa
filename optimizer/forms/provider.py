"""Define the form of a provider. Its key is never rendered; `check_provider_fields` validates it."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from optimizer.actions.provider import ProviderFields, check_provider_fields
from optimizer.models import Provider, ProviderApi, Team, TeamRole, User
from optimizer.text.bounded_json import BoundedDecoder

FIELD_NAMES = tuple(field.name for field in dataclass_fields(ProviderFields))


class ProviderForm(forms.Form):
    """Create a provider (`row` None) or change one, which keeps its team."""

    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    name = forms.SlugField(max_length=60, help_text="Lowercase letters, digits and dashes.")
    base_url = forms.CharField(
        label="Base URL",
        max_length=400,
        widget=forms.URLInput(attrs={"placeholder": "https://api.example.com/v1"}),
        help_text="OpenAI-compatible, including the version: …/v1. For Azure …/openai/v1.",
    )
    key = forms.CharField(
        required=False,
        max_length=2000,
        strip=True,
        # A key that was typed once is never sent back to the browser, not even after an error in another field.
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    forget_key = forms.BooleanField(required=False, label="Delete the stored key")
    default_model = forms.CharField(required=False, max_length=120, help_text="Used when a run names no model.")
    api = forms.ChoiceField(label="API", choices=ProviderApi.choices)
    concurrency = forms.IntegerField(
        min_value=1, initial=4, help_text="Concurrent calls, over all runs and machines."
    )
    timeout_s = forms.FloatField(label="Answer timeout (s)", min_value=1, initial=900)
    silence_s = forms.FloatField(label="Stream timeout (s)", min_value=1, initial=300)
    prices = forms.JSONField(
        decoder=BoundedDecoder,
        required=False,
        initial=dict,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text='USD per million tokens: {"model": {"input": 2, "cached": 0.5, "output": 8}}. They go '
        "before the list prices.",
    )
    is_enabled = forms.BooleanField(required=False, initial=True, label="Enabled")
    allow_private = forms.BooleanField(
        required=False,
        label="Allow private network addresses",
        help_text="For servers on this machine or in your network. Administrators only.",
    )

    def __init__(self, user: User, data: Any = None, *, row: Provider | None = None) -> None:
        super().__init__(data, initial=_initial(row))
        self.user, self.row = user, row
        self._choose_team()
        if not user.is_superuser:
            del self.fields["allow_private"]
        if row is None or not row.has_key:
            del self.fields["forget_key"]
        self.fields["key"].help_text = (
            "Stored encrypted and never shown. Leave empty to keep the current key."
            if row is not None and row.has_key
            else "Stored encrypted and never shown. Optional."
        )

    def clean_prices(self) -> dict[str, Any]:
        """Return the prices as an object. Raises ValidationError."""
        prices = self.cleaned_data["prices"] or {}
        if not isinstance(prices, dict):
            raise ValidationError("Enter an object with one entry per model.")
        return prices

    def clean(self) -> dict[str, Any]:
        """Validate what concerns more than one field. Raises ValidationError."""
        cleaned = super().clean() or {}
        if not self.errors:
            check_provider_fields(self.user, cleaned["team"], self.entered, self.row)
        return cleaned

    @property
    def entered(self) -> ProviderFields:
        """Return the entered values, once every field is valid on its own."""
        return ProviderFields(
            **{name: self.cleaned_data[name] for name in FIELD_NAMES if name in self.cleaned_data}
        )

    def _choose_team(self) -> None:
        field = self.fields["team"]
        assert isinstance(field, forms.ModelChoiceField)  # noqa: S101 - for the type checker
        owned = owned_teams(self.user)
        field.queryset = owned if self.row is None else owned.filter(pk=self.row.team_id)


def owned_teams(user: User) -> Any:
    """Return the teams whose providers the person may change."""
    if user.is_superuser:
        return Team.objects.order_by("name")
    return Team.objects.filter(memberships__user=user, memberships__role=TeamRole.OWNER).order_by("name")


def _initial(row: Provider | None) -> dict[str, Any]:
    """Return the stored values without the key."""
    if row is None:
        return {}
    names = [name for name in FIELD_NAMES if name not in {"key", "forget_key"}]
    return {name: getattr(row, name) for name in names} | {"team": row.team.slug}
