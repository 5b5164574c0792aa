"""Define the form that starts a campaign: what is common to all runs, and one row for each configuration."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from optimizer.actions.campaign import (
    MAX_CONFIGURATIONS,
    MAX_PARALLEL,
    MAX_SEEDS,
    NewCampaign,
    NewConfiguration,
)
from optimizer.forms.campaign_limits import TotalLimitsForm
from optimizer.forms.start_run import teams_to_start_in
from optimizer.models import ObjectiveChoice, Suite, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.suites import Subset, newest_suites
from optimizer.search import STRATEGIES
from optimizer.search.ablations import SETS
from optimizer.text.bounded_json import JsonLimitError, read_json
from runners.dispatch import DISPATCHERS
from runners.job import Baseline

GIB = 1 << 30


class CampaignForm(TotalLimitsForm):
    """Enter suite, target, seeds, baselines and limits. `user` determines the offered teams."""

    title = forms.CharField(max_length=120, required=False, help_text="Optional")
    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    suite = forms.ModelChoiceField(Suite.objects.none(), empty_label=None)
    problems = forms.CharField(
        required=False, max_length=20_000, widget=forms.Textarea(attrs={"rows": 2}), label="Only these problems",
        help_text="Names or patterns such as level1/*, one per line or comma-separated. Default: all.",
    )  # fmt: skip
    count = forms.IntegerField(
        required=False,
        min_value=1,
        label="Sample size",
        help_text="Number of problems to draw at random. Default: all.",
    )
    draw_seed = forms.IntegerField(initial=0, min_value=0, label="Sampling seed")
    most_gib = forms.FloatField(
        required=False, min_value=0, label="Largest footprint, GiB", help_text="Larger problems are skipped."
    )
    target = forms.ModelChoiceField(Target.objects.none(), to_field_name="key", empty_label=None)
    dispatcher = forms.ChoiceField(label="Run on")
    objective = forms.ChoiceField(choices=ObjectiveChoice.choices, initial=ObjectiveChoice.DEVICE, label="Optimise")
    baselines = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple,
        help_text="Runs use the first; winners are timed against all.",
    )
    seeds = forms.CharField(initial="0, 1, 2", max_length=2000, help_text="One run per seed, for example 0-4.")
    parallel_runs = forms.IntegerField(initial=1, min_value=1, max_value=MAX_PARALLEL, label="Parallel runs")
    order_seed = forms.IntegerField(initial=0, min_value=0, label="Order seed")
    is_private = forms.BooleanField(required=False, label="Private: visible to you and the team's owners")

    def __init__(self, user: User, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)
        self._choose("team", teams_to_start_in(user))
        self._choose("suite", Suite.objects.filter(pk__in=[suite.pk for suite in newest_suites()]))
        self._choose("target", Target.objects.order_by("key"))
        self.fields["dispatcher"].choices = [(name, one.title) for name, one in DISPATCHERS.items()]  # type: ignore[attr-defined]
        baselines = [(one.value, one.value.replace("_", " ")) for one in Baseline]
        self.fields["baselines"].choices = baselines  # type: ignore[attr-defined]
        self.fields["baselines"].initial = [Baseline.EAGER.value]

    def _choose(self, name: str, rows: QuerySet[Any]) -> None:
        self.fields[name].queryset = rows  # type: ignore[attr-defined]

    def clean_seeds(self) -> list[int]:
        """Parse `0, 1, 5-7`."""
        return parse_seeds(self.cleaned_data["seeds"])

    def new_campaign(self, configurations: list[NewConfiguration]) -> NewCampaign:
        """Return the arguments of `do_start_campaign`."""
        values = self.cleaned_data
        most = values["most_gib"]
        return NewCampaign(
            team=values["team"],
            suite=values["suite"],
            target=values["target"],
            configurations=configurations,
            subset=Subset(
                names=tuple(split_names(values["problems"])),
                count=values["count"],
                seed=values["draw_seed"],
                most_bytes=None if most is None else int(most * GIB),
            ),
            seeds=values["seeds"],
            baselines=values["baselines"],
            objective=values["objective"],
            dispatcher=values["dispatcher"],
            limits=self.limits,
            parallel_runs=values["parallel_runs"],
            order_seed=values["order_seed"],
            title=values["title"],
            is_private=values["is_private"],
        )


class ConfigurationForm(forms.Form):
    """Enter one configuration; a row without a name is left out."""

    name = forms.CharField(max_length=60, required=False)
    strategy = forms.ChoiceField(choices=[(name, one.title) for name, one in STRATEGIES.items()], initial="tune")
    settings = forms.CharField(
        required=False, max_length=20_000, widget=forms.Textarea(attrs={"rows": 2}),
        help_text="JSON, or one NAME=VALUE per line.",
    )  # fmt: skip
    provider = forms.CharField(required=False, max_length=60, help_text="A model provider, inbox or replay.")
    model = forms.CharField(required=False, max_length=120, label="Model or recording")
    evaluations = forms.IntegerField(required=False, min_value=1, initial=30)
    usd = forms.DecimalField(required=False, min_value=0, max_digits=10, decimal_places=4, label="US dollars")
    tokens = forms.IntegerField(required=False, min_value=1)
    device_minutes = forms.FloatField(required=False, min_value=0, label="Device minutes")
    minutes = forms.FloatField(required=False, min_value=0)

    def clean_settings(self) -> dict[str, Any]:
        """Parse the settings."""
        return parse_settings(self.cleaned_data["settings"])

    def clean(self) -> dict[str, Any]:
        """Refuse a filled-in row without a name."""
        values = super().clean() or {}
        if not values.get("name") and self.has_changed() and not self.errors:
            self.add_error("name", "Name this configuration.")
        return values

    def new_configuration(self) -> NewConfiguration | None:
        """Return the configuration, or None for an empty row."""
        values = self.cleaned_data
        if not values.get("name"):
            return None
        kinds = ("evaluations", "minutes", "usd", "tokens", "device_minutes")
        return NewConfiguration(
            values["name"],
            values["strategy"],
            values["settings"],
            providers_of(values["provider"], values["model"]),
            Budget(**{kind: values[kind] for kind in kinds}),
        )


ConfigurationFormSet = forms.formset_factory(
    ConfigurationForm, extra=1, max_num=MAX_CONFIGURATIONS, validate_max=True, absolute_max=MAX_CONFIGURATIONS
)


def rows_of_set(key: str) -> list[dict[str, Any]]:
    """Return the initial rows of a ready set of configurations; empty for an unknown one."""
    found = SETS.get(key)
    if found is None:
        return []
    return [
        {"name": arm.name, "strategy": arm.strategy, "settings": json.dumps(arm.settings) if arm.settings else ""}
        for arm in found.arms
    ]


def providers_of(provider: str, model: str) -> dict[str, Any]:
    """Return `Run.providers` for one answerer of all roles; `replay` takes its recording in place of a model."""
    if not provider:
        return {}
    if provider == "replay":
        return {"default": {"provider": "replay", "record": model}}
    return {"default": {"provider": provider} | ({"model": model} if model else {})}


def parse_settings(text: str) -> dict[str, Any]:
    """Parse a JSON object, or NAME=VALUE lines whose values are JSON or text. Raises ValidationError."""
    text = text.strip()
    if text.startswith("{"):
        try:
            found = read_json(text)
        except JsonLimitError as error:
            raise ValidationError(f"Invalid JSON: {error}.") from error
        except ValueError as error:
            raise ValidationError("Enter valid JSON.") from error
        return dict(found)
    settings: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise ValidationError(f"Expected NAME=VALUE: {line[:60]}")
        try:
            settings[name.strip()] = read_json(value)
        except ValueError:
            settings[name.strip()] = value.strip()
    return settings


def parse_seeds(text: str) -> list[int]:
    """Parse `0, 1, 5-7`. Raises ValidationError."""
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 40:
            raise ValidationError("Enter numbers and ranges, such as 0, 1, 5-7.")
        low, high = int(first), int(last) if dash else int(first)
        # Check before the range is built: 0-999999999999 would take all memory.
        if high < low or high - low >= MAX_SEEDS or high >= 2**63:
            raise ValidationError(f"At most {MAX_SEEDS} seeds.")
        found += range(low, high + 1)
    return found


def split_names(text: str) -> list[str]:
    """Split names at commas and line ends."""
    return [part.strip() for part in text.replace(",", "\n").splitlines() if part.strip()]
