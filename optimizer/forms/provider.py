"""Define the form of a provider. Its key is never rendered; `check_provider_fields` validates it."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from typing import Any

from django import forms

from optimizer.actions.provider import ProviderFields, check_provider_fields
from optimizer.forms.price_rows import price_rows, prices_in
from optimizer.llm.prices import Price
from optimizer.llm.servers import KnownServer, listed_models
from optimizer.models import Provider, ProviderApi, Team, TeamRole, User

FIELD_NAMES = tuple(field.name for field in dataclass_fields(ProviderFields))


class ProviderForm(forms.Form):
    """Create a provider (`row` None) or change one, which keeps its team.

    `known` fills in the address of a well-known server. `prices` are rows of their own.
    """

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
    default_model = forms.CharField(
        required=False,
        max_length=120,
        widget=forms.TextInput(attrs={"list": "known-models", "spellcheck": "false"}),
        help_text="Used when a run names no model. Models with a list price are suggested.",
    )
    api = forms.ChoiceField(label="API", choices=ProviderApi.choices)
    concurrency = forms.IntegerField(
        min_value=1, initial=4, help_text="Concurrent calls, over all runs and machines."
    )
    timeout_s = forms.FloatField(label="Answer timeout (s)", min_value=1, initial=900)
    silence_s = forms.FloatField(label="Stream timeout (s)", min_value=1, initial=300)
    is_enabled = forms.BooleanField(required=False, initial=True, label="Enabled")
    allow_private = forms.BooleanField(
        required=False,
        label="Allow private network addresses",
        help_text="For servers on this machine or in your network. Administrators only.",
    )

    def __init__(
        self, user: User, data: Any = None, *, row: Provider | None = None, known: KnownServer | None = None
    ) -> None:
        super().__init__(data, initial=_initial(row) or _initial_of(known))
        self.user, self.row = user, row
        self.prices = price_rows(data, row.prices if row else {})
        if known and known.model_hint:
            self.fields["default_model"].widget.attrs["placeholder"] = known.model_hint
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

    def is_valid(self) -> bool:
        """Validate the fields and the prices, so that a person sees all faults at once."""
        return all([super().is_valid(), self.prices.is_valid()])

    def clean(self) -> dict[str, Any]:
        """Validate what concerns more than one field. Raises ValidationError."""
        cleaned = super().clean() or {}
        if not self.errors and self.prices.is_valid():
            check_provider_fields(self.user, cleaned["team"], self.entered, self.row)
        return cleaned

    @property
    def entered(self) -> ProviderFields:
        """Return the entered values, once every field is valid on its own."""
        fields = {name: self.cleaned_data[name] for name in FIELD_NAMES if name in self.cleaned_data}
        return ProviderFields(**fields, prices=prices_in(self.prices, self.row.prices if self.row else {}))

    def known_models(self) -> list[tuple[str, Price]]:
        """Return the models with a list price at the entered address, for completion."""
        return listed_models(str(self["base_url"].value() or ""))

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
    names = [name for name in FIELD_NAMES if name not in {"key", "forget_key", "prices"}]
    return {name: getattr(row, name) for name in names} | {"team": row.team.slug}


def _initial_of(known: KnownServer | None) -> dict[str, Any]:
    if known is None:
        return {}
    return {name: getattr(known, name) for name in ("name", "base_url", "api", "allow_private")}
