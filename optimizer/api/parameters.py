"""Serve the effect of tuned parameters on a run's times."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from optimizer.access import access_run
from optimizer.api.auth import caller, needs
from optimizer.models import TokenScope
from optimizer.queries.compiled_ahead import MOST_NAMED, summarised, summary_of
from optimizer.queries.parameter_importance import ROWS, fastest, importances, spaces_of
from optimizer.reports.plan import as_plain
from optimizer.runs.plan import plan_of
from runners.job import TunableValue

router = Router(tags=["runs"], auth=needs(TokenScope.READ))


class TrialOut(Schema):
    """Describe a correct kernel, by its number in the run, with its parameters."""

    number: int
    values: dict[str, TunableValue]
    time_us: float
    speedup: float | None


class ImportanceOut(Schema):
    """Describe the share of the variation of log time that a parameter explains alone, from 0 to 1.

    `values` counts the values that were tried; `best` is the value with the smallest mean.
    """

    name: str
    share: float
    values: int
    best: TunableValue


class SpaceOut(Schema):
    """Describe trials that vary the same parameters: their number, and the fastest of them."""

    names: list[str]
    count: int
    trials: list[TrialOut]
    importances: list[ImportanceOut]


class RuledOutOut(Schema):
    """Describe a configuration that cannot run, with the compiler's reason."""

    values: dict[str, TunableValue]
    flags: list[str]
    reason: str


class AheadOut(Schema):
    """Describe what was compiled ahead and not run.

    `ruled_out` counts the configurations that cannot run, of which `reasons` names the first 50. `seconds` is the
    compilers' time. `error` says why nothing more is compiled ahead.
    """

    compiled: int
    ruled_out: int
    same_binary: int
    with_features: int
    seconds: float
    is_compiling: bool
    error: str
    reasons: list[RuledOutOut]


@router.get("/{int:run_id}/ahead", response=AheadOut, summary="What was compiled ahead")
def read_ahead(request: HttpRequest, run_id: int) -> Any:
    """Return what the run compiled ahead of its measurements; zeros where it compiles nothing ahead."""
    found = summary_of(access_run(caller(request), run_id, "view")) or summarised([])
    return asdict(found) | {"ruled_out": len(found.ruled_out), "reasons": found.ruled_out[:MOST_NAMED]}


class PlannedOut(Schema):
    """Describe one candidate, in the order in which candidates are sent.

    `stage` is `on the device`, `in the queue`, `being built` or `next`. `improvement` is the expected share of the best
    kernel's time that it saves, `worth` that for each second of the device, `after_s` the run's device time once it is
    measured. A figure is null where nothing is known.
    """

    title: str
    number: int | None
    stage: str
    why: str
    time_us: float | None
    low_us: float | None
    high_us: float | None
    improvement: float | None
    device_s: float | None
    worth: float | None
    after_s: float | None
    fits: bool | None


class PlanOut(Schema):
    """Describe what a run will send to its device. `left_s` is null without a budget of device time."""

    lines: list[PlannedOut]
    spent_s: float
    left_s: float | None
    typical_s: float | None
    note: str


@router.get("/{int:run_id}/plan", response=PlanOut, summary="What the run will send to its device, and why")
def read_plan(request: HttpRequest, run_id: int) -> Any:
    """List the candidates as things stand; a result may change what comes after it."""
    return as_plain(plan_of(access_run(caller(request), run_id, "view")))


@router.get("/{int:run_id}/parameters", response=list[SpaceOut], summary="Tuned parameters and their effect")
def list_parameters(request: HttpRequest, run_id: int) -> Any:
    """List a space for each set of parameters, most trials first, with its 200 fastest trials.

    Importances need at least five trials.
    """
    return [
        {
            "names": space.names,
            "count": len(space.trials),
            "trials": fastest(space, ROWS),
            "importances": importances(space),
        }
        for space in spaces_of(access_run(caller(request), run_id, "view"))
    ]
