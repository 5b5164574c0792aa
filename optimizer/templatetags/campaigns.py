"""Provide the template filters of campaigns: shares, factors and median costs with their intervals."""

from __future__ import annotations

from django import template

from optimizer.queries.budgets import LABELS
from optimizer.queries.campaign_results import Results
from optimizer.reports.campaign import amount, figure, percent, times

register = template.Library()
register.filter("share", percent)
register.filter("factor", times)
register.filter("median", amount)
register.filter("figure", figure)


@register.filter
def limit_label(kind: str) -> str:
    """Return the name of a limit."""
    return LABELS[kind].capitalize()


@register.filter
def configuration_name(results: Results, configuration: int) -> str:
    """Return the name of a configuration by its id."""
    return next((one.name for one in results.configurations if one.pk == configuration), "")
