"""Map the addresses of campaigns."""

from __future__ import annotations

from django.urls import path

from optimizer.views import campaign_start, campaigns

CAMPAIGN = "campaigns/<int:campaign_id>/"

urlpatterns = [
    path("campaigns/", campaigns.campaigns, name="campaigns"),
    path("campaigns/new/", campaign_start.start_campaign, name="start_campaign"),
    path(CAMPAIGN, campaigns.campaign_page, name="campaign_page"),
    path(f"{CAMPAIGN}chart/<slug:figure>/", campaigns.campaign_chart, name="campaign_chart"),
    path(f"{CAMPAIGN}runs/", campaigns.campaign_cells, name="campaign_cells"),
    path(f"{CAMPAIGN}report.<slug:form>", campaigns.campaign_report, name="campaign_report"),
    path(f"{CAMPAIGN}pause/", campaigns.campaign_pause, name="campaign_pause"),
    path(f"{CAMPAIGN}resume/", campaigns.campaign_resume, name="campaign_resume"),
    path(f"{CAMPAIGN}stop/", campaigns.campaign_stop, name="campaign_stop"),
    path(f"{CAMPAIGN}limits/", campaigns.campaign_limits, name="campaign_limits"),
    path(f"{CAMPAIGN}continue/", campaigns.campaign_continue, name="campaign_continue"),
]
