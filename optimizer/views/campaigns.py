"""Show campaigns: the list, one campaign while it runs and after, its runs, charts and reports; steer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_campaign, may_in_team
from optimizer.actions import campaign as actions
from optimizer.actions.campaign_budget import do_continue_campaign, may_continue
from optimizer.charts import campaigns as charts
from optimizer.forms.campaign_limits import LargerBudgetForm, LimitsForm
from optimizer.models import Campaign, RetimeRound, Suite, User
from optimizer.models.campaign import CampaignTransitionError
from optimizer.queries.campaign_overview import bands_against, curves_of, overview_of
from optimizer.queries.campaign_results import THRESHOLDS, Results, problems_of, results_of
from optimizer.queries.campaign_spending import settling_device_s, spent_by_configuration, total
from optimizer.reports.campaign import FORMS
from optimizer.reports.files import as_attachment
from optimizer.views.refusals import as_sentence
from optimizer.views.signed_in import user_of

PER_PAGE = 50


@login_required
@require_safe
def campaigns(request: HttpRequest) -> HttpResponse:
    """List the campaigns that the person may see, newest first, with suites and rounds of the regression watch."""
    mine = Campaign.objects.visible_to(user_of(request)).select_related("suite", "target", "team", "created_by")
    page = Paginator(mine.order_by("-pk"), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": [(one, total(spent_by_configuration(one))) for one in page],
        "suites": Suite.objects.order_by("slug", "-number").distinct("slug"),
        "rounds": _rounds(user_of(request)),
    }
    return render(request, "campaigns/list.html", context)


@login_required
@require_safe
def campaign_page(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show a campaign; the part that changes while it runs is fetched again by the page itself."""
    campaign = access_campaign(user_of(request), campaign_id, "view")
    template = (
        "campaigns/_live.html" if request.headers.get("HX-Target") == "campaign-live" else "campaigns/page.html"
    )
    return render(request, template, _context(request, campaign))


@login_required
@require_safe
def campaign_cells(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """List the runs of a campaign by problem."""
    campaign = access_campaign(user_of(request), campaign_id, "view")
    page = Paginator(problems_of(campaign), PER_PAGE).get_page(request.GET.get("page"))
    results = results_of(campaign, [problem for problem, _ in page])
    baseline = _baseline(request, campaign)
    context = {
        "campaign": campaign,
        "results": results,
        "page": page,
        "baseline": baseline,
        "rows": [(name, _cells(results, problem, baseline)) for problem, name in page],
    }
    return render(request, "campaigns/cells.html", context)


@login_required
@require_safe
def campaign_chart(request: HttpRequest, campaign_id: int, figure: str) -> HttpResponse:
    """Return a figure as plotly JSON: `fast` (against `?baseline=`), or `bands` (against `?axis=`)."""
    campaign = access_campaign(user_of(request), campaign_id, "view")
    if figure == "fast":
        drawn = charts.fast_p(curves_of(campaign, _baseline(request, campaign)), THRESHOLDS)
    elif figure == "bands":
        axis = request.GET.get("axis", "evaluations")
        if axis not in charts.SPENDING:
            raise Http404("There is no such axis.")
        drawn = charts.bands(bands_against(campaign, axis), axis)
    else:
        raise Http404("There is no such figure.")
    return HttpResponse(drawn.to_json(), content_type="application/json")


@login_required
@require_safe
def campaign_report(request: HttpRequest, campaign_id: int, form: str) -> HttpResponse:
    """Download the report, or the results in another benchmark's format."""
    campaign = access_campaign(user_of(request), campaign_id, "view")
    if form not in FORMS:
        raise Http404("There is no such report.")
    content_type, suffix, write = FORMS[form]
    return as_attachment(write(campaign), f"campaign-{campaign.pk}.{suffix}", content_type)


@login_required
@require_POST
def campaign_pause(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Pause the campaign and its runs."""
    return _steer(request, campaign_id, actions.do_pause_campaign)


@login_required
@require_POST
def campaign_resume(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Resume the campaign."""
    return _steer(request, campaign_id, actions.do_resume_campaign)


@login_required
@require_POST
def campaign_stop(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Stop the campaign permanently."""
    return _steer(request, campaign_id, actions.do_stop_campaign)


@login_required
@require_POST
def campaign_limits(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Replace the campaign's limits."""
    form = LimitsForm(request.POST)
    access_campaign(user_of(request), campaign_id, "operate")
    if not form.is_valid():
        messages.error(request, "Enter limits above zero, and 1 to 64 parallel runs.")
        return redirect("campaign_page", campaign_id=campaign_id)
    parallel = form.cleaned_data["parallel_runs"]
    return _steer(
        request, campaign_id, lambda user, one: actions.do_change_limits(user, one, form.limits, parallel)
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def campaign_continue(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Continue the runs that have used up their budget with a larger one."""
    campaign = access_campaign(user_of(request), campaign_id, "operate")
    form = LargerBudgetForm(campaign, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            do_continue_campaign(user_of(request), campaign, form.budget, form.changed_limits)
            return redirect("campaign_page", campaign_id=campaign.pk)
        except CampaignTransitionError as refusal:
            form.add_error(None, as_sentence(refusal))
        except ValidationError as refusal:
            for name, texts in getattr(refusal, "message_dict", {NON_FIELD_ERRORS: refusal.messages}).items():
                form.add_error(name if name in form.fields else None, texts)
    return render(request, "campaigns/continue.html", {"campaign": campaign, "form": form})


def _steer(request: HttpRequest, campaign_id: int, act: Callable[[User, Campaign], object]) -> HttpResponse:
    campaign = access_campaign(user_of(request), campaign_id, "operate")
    try:
        act(user_of(request), campaign)
    except CampaignTransitionError as refusal:
        messages.error(request, as_sentence(refusal))
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
    return redirect("campaign_page", campaign_id=campaign_id)


def _context(request: HttpRequest, campaign: Campaign) -> dict[str, Any]:
    spent = spent_by_configuration(campaign)
    baseline = _baseline(request, campaign)
    overview = overview_of(campaign, baseline)
    whole = total(spent)
    return {
        "campaign": campaign,
        "results": overview,
        "baseline": baseline,
        "summaries": overview.summaries,
        "differences": overview.differences,
        "costs": overview.costs,
        "spent": [(one, spent.get(one.pk)) for one in overview.configurations],
        "total": whole,
        "limits": [(kind, whole.of(kind), limit) for kind, limit in campaign.limits.items() if limit is not None],
        "settling_s": settling_device_s(campaign),
        "unresolved": overview.unresolved,
        "unresolved_count": overview.unresolved_count,
        "axes": charts.SPENDING,
        "may_continue": may_continue(campaign),
        "may_operate": may_in_team(user_of(request), campaign.team, "operate"),
        "limits_form": LimitsForm(initial={name: getattr(campaign, name) for name in LimitsForm.base_fields}),
    }


def _cells(results: Results, problem: int, baseline: str) -> list[list[tuple[Any, Any]]]:
    """Return each cell of a problem with its timing against the baseline, by configuration."""
    return [
        [
            (cell, cell.timed.get(baseline) if cell.is_settled else None)
            for cell in results.by_place[problem, one.pk]
        ]
        for one in results.configurations
    ]


def _baseline(request: HttpRequest, campaign: Campaign) -> str:
    asked = request.GET.get("baseline", "")
    return asked if asked in campaign.baselines else str(campaign.baselines[0])


def _rounds(user: User) -> list[RetimeRound]:
    rounds = RetimeRound.objects.visible_to(user).select_related("team", "target")
    return list(rounds.prefetch_related("retimings__kernel__run")[:10])
