"""Gather what a campaign's pages show of its outcome, once for all who look at a campaign that has ended.

Nothing of a campaign changes after its end, unless it is continued to another end, and its bootstraps take most of a
page's time at thousands of runs. A campaign that goes on is read anew for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from django.core.cache import cache

from optimizer.models import Campaign, CampaignConfiguration
from optimizer.queries.campaign_results import CellResult, Costs, Results, Summary, bands_of, costs_of, results_of
from optimizer.queries.intervals import Interval
from optimizer.queries.suite_statistics import Band, Difference

KEPT_S = 24 * 3600
UNRESOLVED = 50
# To be raised whenever these classes or the rows of reports change: what an earlier version stored is then left alone.
FORMAT = 5

Found = TypeVar("Found")


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


def overview_of(campaign: Campaign, baseline: str, results: Callable[[], Results] | None = None) -> Overview:
    """Return the overview, from the cache where the campaign has ended, else from `results` or the rows."""
    return kept(
        campaign,
        f"overview/{baseline}",
        lambda: _read(campaign, baseline, results() if results else results_of(campaign)),
    )


def curves_of(campaign: Campaign, baseline: str) -> Mapping[str, Sequence[Interval]]:
    """Return fast_p by configuration, from the cache where the campaign has ended."""
    return kept(campaign, f"curves/{baseline}", lambda: results_of(campaign).curves(baseline))


def bands_against(
    campaign: Campaign, kind: str, results: Callable[[], Results] | None = None
) -> Mapping[str, Band]:
    """Return the best-so-far bands against one kind of spending, from the cache where the campaign has ended, else from
    `results` or the rows."""
    return kept(
        campaign, f"bands/{kind}", lambda: bands_of(campaign, results() if results else results_of(campaign), kind)
    )


def kept(campaign: Campaign, name: str, read: Callable[[], Found]) -> Found:
    """Return what `read` returns, from the cache where the campaign has ended. Its next end has another key."""
    if not campaign.state_choice.is_terminal or campaign.finished_at is None:
        return read()
    key = f"campaign/{FORMAT}/{campaign.pk}/{campaign.finished_at.timestamp()}/{name}"
    found = cache.get(key)
    if found is None:
        found = read()
        cache.set(key, found, KEPT_S)
    return cast(Found, found)


def _read(campaign: Campaign, baseline: str, results: Results) -> Overview:
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
