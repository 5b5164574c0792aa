"""Advance a campaign by one step under its row lock.

The step holds no state: it may be called at any time, by several processes, and killed anywhere. Cells get their run,
and timings their evaluation, in the transaction that creates them. It runs on every event of the campaign's runs that
matters and from the sweep, so a lost message costs seconds.
"""

from __future__ import annotations

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from optimizer.actions.campaign import active_cells
from optimizer.campaigns import closing, searching, settling
from optimizer.events.notify import NewNotification, do_notify
from optimizer.models import Campaign, CampaignState, NotificationKind


def advance_campaign(campaign_id: int) -> bool:
    """Take the next steps of the campaign. Return False where another process holds it."""
    with transaction.atomic():
        free = Campaign.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=campaign_id)
        campaign = free.select_related("team", "target", "suite", "created_by").first()
        if campaign is None:
            return not Campaign.objects.filter(pk=campaign_id).exists()
        _advance(campaign)
        campaign.advanced_at = timezone.now()
        campaign.save(update_fields=["advanced_at"])
    return True


def _advance(campaign: Campaign) -> None:
    closing.close_ended(campaign)
    if campaign.state == CampaignState.RUNNING and searching.search(campaign):
        # One that was paused in its settling comes by here again, with its timings planned already.
        if campaign.settling_at is None:
            settling.plan(campaign)
        campaign.enter(CampaignState.SETTLING)
    if campaign.state == CampaignState.SETTLING and settling.settle(campaign):
        _end(campaign, CampaignState.FINISHED)
    if campaign.state == CampaignState.STOPPING and _is_quiet(campaign):
        closing.skip_waiting(campaign, campaign.stop_reason)
        _end(campaign, CampaignState.STOPPED)


def _is_quiet(campaign: Campaign) -> bool:
    return not active_cells(campaign).exists() and not settling.open_timings(campaign).exists()


def _end(campaign: Campaign, state: CampaignState) -> None:
    campaign.enter(state)
    if campaign.created_by is not None:
        text = f"Campaign {campaign.title} has ended: {state.label.lower()}"
        page = reverse("campaign_page", args=[campaign.pk])
        # A campaign that is continued ends again.
        key = f"campaign-{campaign.pk}-{campaign.finished_at:%Y%m%d%H%M%S}"
        new = NewNotification(NotificationKind.CAMPAIGN, key, text, page)
        do_notify([campaign.created_by], new)
