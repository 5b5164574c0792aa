"""Define form fields for who answers which role.

The entry for all roles has plain names (`provider`, `model`); the entry of one role is prefixed with it
(`role.writer.provider`). An empty entry means the same as for all roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from django import forms

from optimizer.calls.choice import Effort, Parameters
from optimizer.forms.strategy_settings import limits_of

DEFAULT = "default"
PREFIX = "role."
OF_A_ROLE = ("provider", "model", "record", "effort", "temperature")
OF_ALL_ROLES = (*OF_A_ROLE, "max_tokens", "expires_minutes")
Choices = Sequence[tuple[str, str]]


def field_name(role: str, part: str) -> str:
    """Return the form's name for a part of a role's entry."""
    return part if role == DEFAULT else f"{PREFIX}{role}.{part}"


def answer_fields(roles: Sequence[str], answerers: Choices, records: Choices) -> dict[str, forms.Field]:
    """Return the fields for all roles and for each role, by name."""
    fields = {part: _field(part, answerers, records) for part in OF_ALL_ROLES}
    as_all = [("", "As all roles"), *answerers]
    return fields | {field_name(role, part): _field(part, as_all, records) for role in roles for part in OF_A_ROLE}


def answers_chosen(values: Mapping[str, Any], roles: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return `Run.providers` from a form's cleaned values.

    Parts that a role leaves empty are those of all roles. An entry without a provider is dropped.
    """
    general = _entry(values, DEFAULT)
    own = {role: _entry(values, role) for role in roles}
    # A role that names only another model uses the provider of all roles.
    filled = {role: entry if "provider" in entry else general | entry for role, entry in own.items() if entry}
    return {role: entry for role, entry in {DEFAULT: general, **filled}.items() if entry.get("provider")}


def answers_initial(providers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the form values of a run's providers, the inverse of `answers_chosen`."""
    for role, entry in providers.items():
        parts = entry if isinstance(entry, Mapping) else {"provider": entry}
        for part, value in parts.items():
            if part in OF_ALL_ROLES:
                yield field_name(role, part), value


def roles_named(values: Mapping[str, Any]) -> list[str]:
    """Return the roles for which an address or a clone has fields."""
    named = [name.removeprefix(PREFIX).rpartition(".")[0] for name in values if name.startswith(PREFIX)]
    return [role for role in dict.fromkeys(named) if role.isidentifier()]


def _entry(values: Mapping[str, Any], role: str) -> dict[str, Any]:
    found = {part: values.get(field_name(role, part)) for part in OF_ALL_ROLES}
    return {part: value for part, value in found.items() if value not in (None, "")}


def _field(part: str, answerers: Choices, records: Choices) -> forms.Field:
    limits = {name: limits_of(info, 0) for name, info in Parameters.model_fields.items()}
    made: dict[str, forms.Field] = {
        "provider": forms.ChoiceField(label="Answered by", choices=answerers),
        "model": forms.CharField(
            label="Model",
            max_length=120,
            help_text="Optional.",
            widget=forms.TextInput(attrs={"list": "known-models"}),
        ),
        "record": forms.ChoiceField(label="Recording", choices=records),
        "effort": forms.ChoiceField(
            label="Reasoning effort",
            choices=[("", "The server's default"), *((value, value) for value in get_args(Effort))],
        ),
        "temperature": forms.FloatField(label="Temperature", help_text="Optional.", **limits["temperature"]),
        "max_tokens": forms.IntegerField(label="Longest answer", help_text="In tokens.", **limits["max_tokens"]),
        "expires_minutes": forms.FloatField(
            label="Expires after", help_text="Minutes in the inbox.", **limits["expires_minutes"]
        ),
    }
    field = made[part]
    field.required = False
    return field
