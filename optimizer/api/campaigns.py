"""List, start, steer and report campaigns."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, Header, Query, Router, Schema, Status

from optimizer.access import access_campaign
from optimizer.actions import campaign as actions
from optimizer.actions.campaign_budget import do_continue_campaign
from optimizer.actions.once import KeyReusedError, do_once
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, newest_first
from optimizer.api.runs import named, team_of
from optimizer.forms.bodies import ConfigurationIn, Limits, TotalLimits
from optimizer.models import Campaign, Suite, Target, TokenScope
from optimizer.models.campaign import CampaignTransitionError
from optimizer.queries.campaign_spending import spent_by_configuration, total
from optimizer.queries.suites import Subset
from optimizer.reports.campaign import FORMS
from optimizer.reports.files import as_attachment
from runners.job import Baseline, Objective

router = Router(tags=["campaigns"], auth=needs(TokenScope.READ))
STEER = needs(TokenScope.RUNS)


class SubsetIn(Body):
    """Choose problems of the suite: by name or pattern, by a draw, by footprint."""

    names: list[str] = Field(default=[], max_length=5000)
    count: int | None = Field(default=None, ge=1, le=100_000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    most_bytes: int | None = Field(default=None, ge=0, lt=2**63)


class CampaignIn(Body):
    """Describe a campaign to start. Runs search against the first of `baselines`."""

    suite: str = Field(description="slug of a suite; its newest number is taken without `suite_number`")
    suite_number: int | None = Field(default=None, ge=1, le=2**31 - 1)
    target: str = "cpu"
    team: str = Field(default="", description="slug; optional for members of one team")
    configurations: list[ConfigurationIn] = Field(min_length=1, max_length=actions.MAX_CONFIGURATIONS)
    problems: SubsetIn = SubsetIn()
    seeds: list[int] = Field(default=[0], max_length=actions.MAX_SEEDS)
    baselines: list[str] = Field(default=[Baseline.EAGER.value], max_length=len(Baseline))
    objective: str = Objective.DEVICE.value
    dispatcher: str = "celery"
    dispatch_settings: dict[str, Any] = {}
    limits: TotalLimits = TotalLimits()
    parallel_runs: int = 1
    order_seed: int = Field(default=0, ge=0, lt=2**63)
    title: str = Field(default="", max_length=120)
    is_private: bool = False


class LimitsIn(TotalLimits):
    """Replace the limits of a campaign that has not ended."""

    parallel_runs: int = 1


class ContinueIn(Body):
    """Raise the budget of each run, and change limits of all runs together. Every limit that is left out stays."""

    budget: Limits
    limits: TotalLimits | None = None


class CampaignOut(Schema):
    """Describe a campaign with its progress and spending."""

    id: int
    title: str
    team: str
    suite: str
    suite_number: int
    target: str
    state: str
    stop_reason: str
    baselines: list[str]
    configurations: list[str]
    parallel_runs: int
    limits: dict[str, float | None]
    spent: dict[str, float]
    runs: int
    runs_ended: int
    runs_skipped: int
    created_by: str | None
    created_at: dt.datetime
    finished_at: dt.datetime | None


class SuiteOut(Schema):
    """Describe a suite."""

    slug: str
    number: int
    title: str
    origin: str
    version: str
    licence: str
    problems: list[str]
    unusable: dict[str, str]


@router.get("", response=Page[CampaignOut], summary="List campaigns, newest first")
def list_campaigns(request: HttpRequest, window: Query[Window]) -> Any:
    """List the campaigns that the caller may see."""
    rows = Campaign.objects.visible_to(caller(request)).select_related("suite", "target", "team", "created_by")
    page = newest_first(rows, window)
    return {"items": [_out(row) for row in page["items"]], "next": page["next"]}


@router.get("/suites", response=list[SuiteOut])
def list_suites(request: HttpRequest) -> Any:
    """List the newest number of every suite, with its problems."""
    rows = Suite.objects.order_by("slug", "-number").distinct("slug")
    return [_suite_out(row) for row in rows]


@router.post(
    "",
    response={201: CampaignOut, 200: CampaignOut, 409: Refusal, 422: Refusal},
    auth=STEER,
    summary="Start a campaign",
)
def start_campaign(
    request: HttpRequest,
    body: CampaignIn,
    idempotency_key: Annotated[str, Header(alias="Idempotency-Key", max_length=100)] = "",
) -> Any:
    """Start a campaign: every configuration on every chosen problem, once for each seed.

    With an `Idempotency-Key`, the same request starts one campaign however often it is sent. Repetitions answer 200.
    """
    start = lambda: actions.do_start_campaign(caller(request), _new(request, body))  # noqa: E731
    try:
        # The kind is part of what is compared: the key of a run starts no campaign.
        made, is_new = do_once(caller(request), idempotency_key, {"campaign": body.model_dump(mode="json")}, start)
    except KeyReusedError as error:
        return Status(409, Refusal(detail=str(error)))
    return Status(201 if is_new else 200, _out(made))


@router.get("/{int:campaign_id}", response=CampaignOut, summary="One campaign")
def read_campaign(request: HttpRequest, campaign_id: int) -> Any:
    """Return one campaign."""
    return _out(access_campaign(caller(request), campaign_id, "view"))


@router.post("/{int:campaign_id}/pause", response={200: CampaignOut, 409: Refusal}, auth=STEER)
def pause_campaign(request: HttpRequest, campaign_id: int) -> Any:
    """Pause the campaign and its runs."""
    return _steered(request, campaign_id, actions.do_pause_campaign)


@router.post("/{int:campaign_id}/resume", response={200: CampaignOut, 409: Refusal}, auth=STEER)
def resume_campaign(request: HttpRequest, campaign_id: int) -> Any:
    """Resume a paused campaign."""
    return _steered(request, campaign_id, actions.do_resume_campaign)


@router.post("/{int:campaign_id}/stop", response={200: CampaignOut, 409: Refusal}, auth=STEER)
def stop_campaign(request: HttpRequest, campaign_id: int) -> Any:
    """Stop the campaign permanently. Problems that are not settled completely do not count."""
    return _steered(request, campaign_id, actions.do_stop_campaign)


@router.put("/{int:campaign_id}/limits", response={200: CampaignOut, 409: Refusal, 422: Refusal}, auth=STEER)
def change_limits(request: HttpRequest, campaign_id: int, body: LimitsIn) -> Any:
    """Replace all limits of a campaign that has not ended."""
    return _steered(
        request,
        campaign_id,
        lambda user, one: actions.do_change_limits(user, one, body.limits(), body.parallel_runs),
    )


@router.post(
    "/{int:campaign_id}/continue", response={200: CampaignOut, 409: Refusal, 422: Refusal}, auth=STEER,
    summary="Continue a campaign with larger budgets",
)  # fmt: skip
def continue_campaign(request: HttpRequest, campaign_id: int, body: ContinueIn) -> Any:
    """Raise the budget of every run. Runs that had used theirs up go on, and then all is settled again."""
    limits = None if body.limits is None else body.limits.model_dump(include=body.limits.model_fields_set)
    return _steered(
        request, campaign_id, lambda user, one: do_continue_campaign(user, one, body.budget.budget(), limits)
    )


@router.get("/{int:campaign_id}/report.{form}")
def report(request: HttpRequest, campaign_id: int, form: str) -> HttpResponse:
    """Return the report: `html`, `md`, `csv` or `json`, or results as `kernelbench` or `kernelbench-com`."""
    campaign = access_campaign(caller(request), campaign_id, "view")
    if form not in FORMS:
        raise Http404("There is no such report.")
    content_type, suffix, write = FORMS[form]
    return as_attachment(write(campaign), f"campaign-{campaign.pk}.{suffix}", content_type)


def _new(request: HttpRequest, body: CampaignIn) -> actions.NewCampaign:
    suites = Suite.objects.filter(slug=body.suite)
    if body.suite_number is not None:
        suites = suites.filter(number=body.suite_number)
    plain = body.model_dump(
        include={"seeds", "baselines", "objective", "dispatcher", "dispatch_settings", "parallel_runs", "order_seed",
                 "title", "is_private"}
    )  # fmt: skip
    return actions.NewCampaign(
        **plain,
        suite=named(suites.order_by("-number").first(), "suite", body.suite),
        target=named(Target.objects.filter(key=body.target).first(), "target", body.target),
        team=team_of(request, body.team),
        configurations=[one.new_configuration() for one in body.configurations],
        subset=Subset(
            tuple(body.problems.names), body.problems.count, body.problems.seed, body.problems.most_bytes
        ),
        limits=body.limits.limits(),
    )


def _steered(request: HttpRequest, campaign_id: int, act: Any) -> Any:
    campaign = access_campaign(caller(request), campaign_id, "operate")
    try:
        act(caller(request), campaign)
    except CampaignTransitionError as refusal:
        return Status(409, Refusal(detail=f"{refusal}"))
    return _out(access_campaign(caller(request), campaign_id, "view"))


def _out(row: Campaign) -> dict[str, Any]:
    spent = total(spent_by_configuration(row))
    plain = ("title", "state", "stop_reason", "baselines", "parallel_runs", "created_at", "finished_at")
    return {name: getattr(row, name) for name in plain} | {
        "id": row.pk,
        "team": row.team.slug,
        "suite": row.suite.slug,
        "suite_number": row.suite.number,
        "target": row.target.key,
        "configurations": list(row.configurations.values_list("name", flat=True)),
        "limits": {kind: None if limit is None else float(limit) for kind, limit in row.limits.items()},
        "spent": {kind: spent.of(kind) for kind in (*row.limits, "evaluations")},
        "runs": spent.cells,
        "runs_ended": spent.closed,
        "runs_skipped": spent.skipped,
        "created_by": row.created_by.get_username() if row.created_by else None,
    }


def _suite_out(row: Suite) -> dict[str, Any]:
    entries = list(row.entries.values_list("name", "complaint", "problem_version"))
    plain = ("slug", "number", "title", "origin", "version", "licence")
    return {name: getattr(row, name) for name in plain} | {
        "problems": [name for name, _, version in entries if version is not None],
        "unusable": {name: complaint for name, complaint, version in entries if version is None},
    }
