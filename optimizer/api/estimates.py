"""Estimate what a run would take, before it is started."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from optimizer.actions.run import check_start_run
from optimizer.api.auth import caller, needs
from optimizer.api.errors import Refusal
from optimizer.api.runs import StartRun, new_run
from optimizer.models import TokenScope
from optimizer.queries.estimate import as_plain, estimate_run
from optimizer.queries.runners import absence_of_runners

router = Router(tags=["runs"], auth=needs(TokenScope.READ))


class RangeOut(Schema):
    """Hold the limits of a range."""

    low: float
    high: float


class EstimateOut(Schema):
    """Describe an estimate from ended runs that the caller may see.

    `based_on` counts those runs and `likeness` says in which way they resemble this one. A figure is null where
    nothing is known. `absence` is a warning if no runner would measure the run.
    """

    based_on: int
    likeness: str
    evaluations: int | None
    minutes: RangeOut | None
    device_minutes: RangeOut | None
    usd: RangeOut | None
    tokens: RangeOut | None
    absence: str


@router.post("/estimate", response={200: EstimateOut, 422: Refusal}, summary="Estimate a run")
def estimate(request: HttpRequest, body: StartRun) -> Any:
    """Estimate a run. The request is that of a start and is validated like one, but nothing is started."""
    new = check_start_run(caller(request), new_run(request, body))
    found = estimate_run(
        new.problem_version.problem,
        new.target,
        new.strategy,
        new.budget,
        seen_by=caller(request),
        providers=new.providers,
    )
    return as_plain(found) | {"absence": absence_of_runners(new.target.key, new.dispatcher)}
