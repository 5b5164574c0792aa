"""Define the forms for the limits of a campaign: those of all runs together, and larger budgets of each run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django import forms

from optimizer.actions.campaign import MAX_PARALLEL, Limits, budget_from
from optimizer.actions.campaign_budget import shown
from optimizer.models import Campaign
from optimizer.models.campaign import LIMIT_KINDS
from optimizer.queries.budgets import MOST, Budget


class TotalLimitsForm(forms.Form):
    """Enter the limits of all runs together; empty is unlimited."""

    limit_usd = forms.DecimalField(required=False, min_value=0, max_digits=10, decimal_places=4, label="US dollars")
    limit_tokens = forms.IntegerField(required=False, min_value=1, max_value=MOST["tokens"], label="Tokens")
    limit_device_minutes = forms.FloatField(
        required=False, min_value=0, max_value=MOST["device_minutes"], label="Device minutes"
    )

    @property
    def limits(self) -> Limits:
        """Return the entered limits."""
        return Limits(**{kind: self.cleaned_data[f"limit_{kind}"] for kind in LIMIT_KINDS})


class LimitsForm(TotalLimitsForm):
    """Enter the limits of all runs together and the number of parallel runs."""

    parallel_runs = forms.IntegerField(min_value=1, max_value=MAX_PARALLEL, label="Parallel runs")


class LargerBudgetForm(TotalLimitsForm):
    """Enter a larger budget for each run, of the kinds that all configurations limit, and the limits of all runs."""

    evaluations = forms.IntegerField(required=False, min_value=1, max_value=MOST["evaluations"])
    minutes = forms.FloatField(required=False, min_value=0, max_value=MOST["minutes"], label="Active minutes")
    usd = forms.DecimalField(required=False, min_value=0, max_digits=10, decimal_places=4, label="US dollars")
    tokens = forms.IntegerField(required=False, min_value=1, max_value=MOST["tokens"])
    device_minutes = forms.FloatField(
        required=False, min_value=0, max_value=MOST["device_minutes"], label="Device minutes"
    )

    def __init__(self, campaign: Campaign, data: Any = None) -> None:
        super().__init__(data, initial={f"limit_{kind}": limit for kind, limit in campaign.limits.items()})
        for field in self.all_runs:
            # What the page showed, so that a limit which somebody else has changed meanwhile is left alone.
            field.field.show_hidden_initial = True
        budgets = [asdict(budget_from(one.budget)) for one in campaign.configurations.all()]
        for kind in asdict(Budget()):
            now = {budget[kind] for budget in budgets}
            if None in now:
                del self.fields[kind]
            else:
                self.fields[kind].help_text = f"Now {', '.join(map(shown, sorted(now)))}"

    @property
    def each_run(self) -> list[forms.BoundField]:
        """Return the fields of the budget of each run."""
        return [self[kind] for kind in asdict(Budget()) if kind in self.fields]

    @property
    def all_runs(self) -> list[forms.BoundField]:
        """Return the fields of the limits of all runs together."""
        return [self[f"limit_{kind}"] for kind in LIMIT_KINDS]

    @property
    def budget(self) -> Budget:
        """Return the entered budget of each run; None where the present one stays."""
        return Budget(**{kind: self.cleaned_data.get(kind) for kind in asdict(Budget())})

    @property
    def changed_limits(self) -> dict[str, Any]:
        """Return the limits of all runs that were changed on the page, by kind."""
        return {kind: limit for kind, limit in asdict(self.limits).items() if f"limit_{kind}" in self.changed_data}
