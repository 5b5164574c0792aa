"""Serve the effect of tuned parameters on a run's times."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from optimizer.access import access_run
from optimizer.api.auth import caller, needs
from optimizer.models import TokenScope
from optimizer.queries.parameter_importance import ROWS, fastest, importances, spaces_of
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
