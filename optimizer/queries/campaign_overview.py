"""Gather what a campaign's page shows of its outcome, once for all who look at a campaign that has ended.

Nothing of an ended campaign changes any more, and its bootstraps take most of a page's time at thousands of runs. A
campaign that goes on is read anew for each page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from django.core.cache import cache

from optimizer.models import Campaign, CampaignConfiguration
from optimizer.queries.campaign_results import CellResult, Costs, Summary, costs_of, results_of
from optimizer.queries.suite_statistics import Difference

KEPT_S = 24 * 3600
UNRESOLVED = 50
# To be raised whenever these classes change: what an earlier version stored is then left alone.
FORMAT = 1


@dataclass(frozen=True)
class Overview:
    """Hold a campaign's outcome against one baseline. `unresolved` holds the first cells without a figure."""

    configurations: Sequence[CampaignConfiguration]
    problems: Sequence[tuple[int, str]]
    seeds: Sequence[int]
    settled_problems: int
    summaries: Sequence[Summary]
    differences: Sequence[Difference]
    costs: Sequence[Costs]
    unresolved: Sequence[CellResult]
    unresolved_count: int


def overview_of(campaign: Campaign, baseline: str) -> Overview:
    """Return the overview, from the cache where the campaign has ended."""
    if not campaign.state_choice.is_terminal or campaign.finished_at is None:
        return _read(campaign, baseline)
    key = f"campaign-overview/{FORMAT}/{campaign.pk}/{campaign.finished_at.timestamp()}/{baseline}"
    kept = cache.get(key)
    if kept is None:
        kept = _read(campaign, baseline)
        cache.set(key, kept, KEPT_S)
    return cast(Overview, kept)


def _read(campaign: Campaign, baseline: str) -> Overview:
    results = results_of(campaign)
    unresolved = results.unresolved()
    return Overview(
        configurations=list(results.configurations),
        problems=results.problems,
        seeds=results.seeds,
        settled_problems=results.settled_problems(),
        summaries=results.summaries(baseline),
        differences=results.differences(baseline),
        costs=costs_of(campaign, results),
        unresolved=unresolved[:UNRESOLVED],
        unresolved_count=len(unresolved),
    )
