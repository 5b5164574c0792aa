"""Define the form for the limits of a campaign that is under way."""

from __future__ import annotations

from django import forms

from optimizer.actions.campaign import MAX_PARALLEL


class LimitsForm(forms.Form):
    """Enter the limits of all runs together; empty is unlimited."""

    limit_usd = forms.DecimalField(required=False, min_value=0, max_digits=10, decimal_places=4, label="US dollars")
    limit_tokens = forms.IntegerField(required=False, min_value=1, label="Tokens")
    limit_device_minutes = forms.FloatField(required=False, min_value=0, label="Device minutes")
    parallel_runs = forms.IntegerField(min_value=1, max_value=MAX_PARALLEL, label="Parallel runs")
