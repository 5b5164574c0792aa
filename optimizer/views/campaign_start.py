"""Show the form that starts a campaign, filled with a ready set of configurations where the address names one."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from optimizer.actions.campaign import do_start_campaign
from optimizer.forms.campaign import CampaignForm, ConfigurationForm, ConfigurationFormSet, rows_of_set
from optimizer.models import Campaign
from optimizer.search.ablations import SETS
from optimizer.views.signed_in import user_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def start_campaign(request: HttpRequest) -> HttpResponse:
    """Show the form; on POST, start the campaign."""
    user, chosen = user_of(request), request.GET.get("set", "")
    posted = request.POST if request.method == "POST" else None
    form = CampaignForm(user, posted)
    rows = ConfigurationFormSet(posted, prefix="c", initial=None if posted else rows_of_set(chosen))
    if posted is not None and form.is_valid() and rows.is_valid() and (campaign := _start(request, form, rows)):
        return redirect("campaign_page", campaign_id=campaign.pk)
    context = {"form": form, "rows": rows, "sets": SETS.values(), "chosen": chosen}
    return render(request, "campaigns/start.html", context)


def _start(request: HttpRequest, form: CampaignForm, rows: Iterable[ConfigurationForm]) -> Campaign | None:
    found = [row.new_configuration() for row in rows]
    try:
        return do_start_campaign(user_of(request), form.new_campaign([one for one in found if one is not None]))
    except ValidationError as refusal:
        for name, messages in refusal.message_dict.items():
            form.add_error(name if name in form.fields else None, messages)
        return None
