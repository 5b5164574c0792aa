"""List, start, clone and steer runs, and list their events."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Field, Header, Query, Router, Schema, Status

from optimizer.access import access_run
from optimizer.actions import run as actions
from optimizer.actions.once import KeyReusedError, do_once
from optimizer.actions.run import NewRun
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, newest_first, page_of
from optimizer.forms.bodies import Limits
from optimizer.models import Problem, Run, RunEvent, RunState, Target, Team, TokenScope
from optimizer.queries.budgets import Budget
from runners.job import Baseline, Objective

router = Router(tags=["runs"], auth=needs(TokenScope.READ))
STEER = needs(TokenScope.RUNS)
HEAVY = ("problem_version__bundle", "problem_version__description", "best_kernel__source", "best_kernel__report",
         "best_kernel__meta")  # fmt: skip


class RunOut(Schema):
    """Describe a run: its settings, its spending, and its best kernel with the interval of its speedup."""

    id: int
    title: str
    team: str
    problem: str
    problem_version: int
    target: str
    strategy: str
    settings: dict[str, Any]
    providers: dict[str, Any]
    baseline: str
    objective: str
    seed: int
    dispatcher: str
    guidance: str
    is_private: bool
    is_archived: bool
    tags: list[str]
    notes: str
    state: str
    stop_reason: str
    budget: dict[str, Any]
    spent: dict[str, Any]
    best_kernel: int | None
    best_speedup: float | None
    best_speedup_low: float | None
    best_speedup_high: float | None
    last_seq: int
    cloned_from: int | None
    created_by: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None


class RunFilter(Schema):
    """Filter runs."""

    problem: str = ""
    target: str = ""
    strategy: str = ""
    state: str = ""
    team: str = ""
    archived: bool = False


class StartRun(Body):
    """Describe a run to start.

    `settings` are the strategy's. `providers` say who answers which role, as `{"default": {"provider": "name",
    "model": "name"}}`.
    """

    problem: str
    target: str = "cpu"
    strategy: str = "tune"
    team: str = Field(default="", description="slug; optional for members of one team")
    problem_version: int | None = Field(default=None, ge=1, le=2**31 - 1)
    settings: dict[str, Any] = {}
    providers: dict[str, Any] = {}
    budget: Limits = Limits()
    seed: int = 0
    baseline: str = Baseline.EAGER.value
    objective: str = Field(
        default=Objective.DEVICE.value,
        description="`device` or `call`: whether speedups compare time on the device alone, or calls with the host",
    )
    dispatcher: str = "celery"
    dispatch_settings: dict[str, Any] = {}
    title: str = Field(default="", max_length=200)
    guidance: str = Field(default="", max_length=8000)
    is_private: bool = False


class EventOut(Schema):
    """Describe one event; `payload` depends on its type."""

    seq: int
    type: str
    payload: dict[str, Any]
    created_at: dt.datetime


@router.get("", response=Page[RunOut], summary="List runs, newest first")
def list_runs(request: HttpRequest, only: Query[RunFilter], window: Query[Window]) -> Any:
    """List the runs that the caller may see."""
    page = newest_first(_narrowed(_visible(request), only), window)
    return {"items": [run_out(run) for run in page["items"]], "next": page["next"]}


@router.post("", response={201: RunOut, 200: RunOut, 409: Refusal, 422: Refusal}, auth=STEER, summary="Start a run")
def start_run(
    request: HttpRequest,
    body: StartRun,
    idempotency_key: Annotated[str, Header(alias="Idempotency-Key", max_length=100)] = "",
) -> Any:
    """Start a run. With an `Idempotency-Key`, the same request starts one run however often it is sent.

    Repetitions answer 200.
    """
    return _once(request, idempotency_key, body.model_dump(mode="json"), lambda: _start(request, body))


@router.get("/{int:run_id}", response=RunOut, summary="One run")
def read_run(request: HttpRequest, run_id: int) -> Any:
    """Return one run. Answers 404 where there is none for the caller."""
    return run_out(access_run(caller(request), run_id, "view"))


@router.post("/{int:run_id}/clone", response={201: RunOut, 200: RunOut, 409: Refusal, 422: Refusal}, auth=STEER)
def clone_run(
    request: HttpRequest,
    run_id: int,
    idempotency_key: Annotated[str, Header(alias="Idempotency-Key", max_length=100)] = "",
) -> Any:
    """Start a run with the same settings."""
    run = access_run(caller(request), run_id, "view")
    start = lambda: actions.do_clone_run(caller(request), run)  # noqa: E731
    return _once(request, idempotency_key, {"clone": run.pk}, start)


@router.post("/{int:run_id}/pause", response={200: RunOut, 409: Refusal}, auth=STEER)
def pause_run(request: HttpRequest, run_id: int) -> Any:
    """Pause the run: open work ends and nothing new begins."""
    return run_out(actions.do_pause_run(caller(request), _operated(request, run_id)))


@router.post("/{int:run_id}/resume", response={200: RunOut, 409: Refusal}, auth=STEER)
def resume_run(request: HttpRequest, run_id: int) -> Any:
    """Resume a paused run."""
    return run_out(actions.do_resume_run(caller(request), _operated(request, run_id)))


@router.post("/{int:run_id}/stop", response={200: RunOut, 409: Refusal}, auth=STEER)
def stop_run(request: HttpRequest, run_id: int) -> Any:
    """Stop the run permanently."""
    return run_out(actions.do_stop_run(caller(request), _operated(request, run_id)))


@router.put("/{int:run_id}/budget", response={200: RunOut, 409: Refusal, 422: Refusal}, auth=STEER)
def raise_budget(request: HttpRequest, run_id: int, body: Limits) -> Any:
    """Replace all limits of a live run."""
    run = _operated(request, run_id)
    return run_out(actions.do_raise_budget(caller(request), run, Budget(**body.model_dump())))


@router.post(
    "/{int:run_id}/continue",
    response={200: RunOut, 409: Refusal, 422: Refusal},
    auth=STEER,
    summary="Continue with more budget",
)
def continue_run(request: HttpRequest, run_id: int, body: Limits) -> Any:
    """Continue a run that finished because its budget was used up, under limits that replace all of its own.

    Answers 409 for a run that ended for another reason or belongs to a campaign, and 422 for limits that are still
    used up.
    """
    run = _operated(request, run_id)
    return run_out(actions.do_continue_run(caller(request), run, Budget(**body.model_dump())))


@router.get("/{int:run_id}/events", response=Page[EventOut], summary="Events of a run, in order")
def list_events(request: HttpRequest, run_id: int, window: Query[Window], after: int = 0) -> Any:
    """List events with a number above `after`, oldest first. Continue with the last number: none is ever skipped."""
    run = access_run(caller(request), run_id, "view")
    events = RunEvent.objects.filter(run=run, seq__gt=max(0, after)).order_by("seq")
    return page_of(events, window, "seq")


def run_out(run: Run) -> dict[str, Any]:
    """Return a run in the API's form."""
    kinds = ("evaluations", "minutes", "usd", "tokens", "device_minutes")
    plain = ("title", "strategy", "settings", "providers", "baseline", "objective", "seed", "dispatcher", "guidance",
             "is_private", "is_archived", "tags", "notes", "state", "stop_reason", "best_speedup", "best_speedup_low",
             "best_speedup_high", "last_seq", "created_at", "started_at", "finished_at")  # fmt: skip
    return {name: getattr(run, name) for name in plain} | {
        "id": run.pk,
        "team": run.team.slug,
        "problem": run.problem_version.problem.slug,
        "problem_version": run.problem_version.number,
        "target": run.target.key,
        "budget": {kind: plain_number(getattr(run, f"budget_{kind}")) for kind in kinds},
        "spent": {
            "evaluations": run.spent_evaluations,
            "minutes": run.elapsed_s() / 60,
            "usd": float(run.spent_usd),
            "tokens": run.spent_tokens,
            "device_minutes": run.spent_device_s / 60,
        },
        "best_kernel": run.best_kernel.number if run.best_kernel else None,
        "cloned_from": run.cloned_from_id,
        "created_by": run.created_by.get_username() if run.created_by else None,
    }


def _visible(request: HttpRequest) -> QuerySet[Run]:
    seen = Run.objects.visible_to(caller(request)).order_by().values("pk")
    return Run.objects.for_dashboard().defer(*HEAVY).filter(pk__in=seen)


def _narrowed(runs: QuerySet[Run], only: RunFilter) -> QuerySet[Run]:
    paths = {"problem": "problem_version__problem__slug", "target": "target__key", "team": "team__slug",
             "strategy": "strategy"}  # fmt: skip
    for name, path in paths.items():
        if value := getattr(only, name):
            runs = runs.filter(**{path: value})
    if only.state == "active":
        runs = runs.exclude(state__in=[state for state in RunState if state.is_terminal])
    elif only.state:
        runs = runs.filter(state=only.state)
    return runs.filter(is_archived=only.archived)


def _operated(request: HttpRequest, run_id: int) -> Run:
    return access_run(caller(request), run_id, "operate")


def _start(request: HttpRequest, body: StartRun) -> Run:
    return actions.do_start_run(caller(request), new_run(request, body))


def new_run(request: HttpRequest, body: StartRun) -> NewRun:
    """Look up the named rows. Raises ValidationError with the fields at fault."""
    seen = Problem.objects.visible_to(caller(request))
    problem = named(seen.filter(slug=body.problem).first(), "problem", body.problem)
    version = (
        problem.versions.filter(number=body.problem_version).first() if body.problem_version else problem.latest()
    )
    given = body.model_dump(exclude={"problem", "problem_version", "target", "team", "budget"})
    return NewRun(
        **given,
        problem_version=named(version, "problem_version", str(body.problem_version)),
        target=named(Target.objects.filter(key=body.target).first(), "target", body.target),
        team=team_of(request, body.team),
        budget=Budget(**body.budget.model_dump()),
    )


def team_of(request: HttpRequest, slug: str) -> Team:
    """Return the team of that name, or the caller's only one. Raises ValidationError."""
    user = caller(request)
    mine = Team.objects.all() if user.is_superuser else Team.objects.filter(memberships__user=user)
    if slug:
        team: Team = named(mine.filter(slug=slug).first(), "team", slug)
        return team
    # Two suffice to know that the choice is ambiguous.
    found = list(Team.objects.filter(memberships__user=user)[:2])
    if len(found) != 1:
        raise ValidationError({"team": "Name the team."})
    return found[0]


def named(row: Any, field: str, name: str) -> Any:
    """Return the row. Raises ValidationError where there is none of that name."""
    if row is None:
        raise ValidationError({field: f"There is none called {name!r}."})
    return row


def _once(request: HttpRequest, key: str, body: dict[str, Any], start: Any) -> Any:
    try:
        run, is_new = do_once(caller(request), key, body, start)
    except KeyReusedError as error:
        return Status(409, Refusal(detail=str(error)))
    return Status(201 if is_new else 200, run_out(run))


def plain_number(value: Any) -> Any:
    """Return the value as JSON represents it: decimals as floats."""
    return float(value) if isinstance(value, Decimal) else value
