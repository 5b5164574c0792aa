"""Compare runs."""

from __future__ import annotations

from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from optimizer.api.auth import caller, needs
from optimizer.api.errors import Refusal
from optimizer.api.runs import RunOut, plain_number, run_out
from optimizer.forms.run_differences import differences_of
from optimizer.models import Run, TokenScope
from optimizer.queries.comparison import MOST, Outcome, compared, on_same_ground, outcomes_of

router = Router(tags=["runs"], auth=needs(TokenScope.READ))
NUMBERS = rf"^[0-9]{{1,18}}(,[0-9]{{1,18}}){{1,{MOST - 1}}}$"


class IntervalOut(Schema):
    """Hold a value with its 95 % interval."""

    value: float
    low: float
    high: float


class OutcomeOut(Schema):
    """Describe the outcome of one run, over its kernels without the seeds.

    `success` (correct) and `fast1` (correct and faster than the baseline) are in per cent. `geomean` is the geometric
    mean of the speedups of the correct ones. A win is faster by more than the noise floor and confirmed by the
    referee. `device_us` and `call_us` are the times of the run's best kernel. Values are null where there is nothing
    to count.
    """

    run: int
    evaluated: int
    wins: int
    success: IntervalOut | None
    fast1: IntervalOut | None
    geomean: IntervalOut | None
    device_us: float | None
    call_us: float | None
    usd_per_win: float | None
    evaluations_per_win: float | None

    @staticmethod
    def resolve_run(one: Outcome) -> int:
        """Return the run's number."""
        return one.run.pk


class DifferenceOut(Schema):
    """Describe a setting in which the runs differ, with its value in each run, in their order."""

    setting: str
    values: list[Any]


class ComparisonOut(Schema):
    """Describe the comparison. Runs, outcomes and values are in the requested order.

    Without `same_ground` the runs differ in problem, target, baseline or objective, and their speedups are not
    comparable.
    """

    runs: list[RunOut]
    same_ground: bool
    outcomes: list[OutcomeOut]
    differences: list[DifferenceOut]


@router.get("/compare", response={200: ComparisonOut, 422: Refusal}, summary="Two to eight runs side by side")
def compare_runs(request: HttpRequest, ids: Annotated[str, Query(pattern=NUMBERS)]) -> Any:
    """Compare the runs in `ids`, such as `1,2,3`. Answers 404 where the caller may not see one of them."""
    runs = _named(request, ids)
    return {
        "runs": [run_out(run) for run in runs],
        "same_ground": on_same_ground(runs),
        "outcomes": outcomes_of(runs),
        "differences": [
            {"setting": name, "values": [plain_number(value) for value in values]}
            for name, values in differences_of(runs)
        ],
    }


def _named(request: HttpRequest, ids: str) -> list[Run]:
    wanted = list(dict.fromkeys(int(number) for number in ids.split(",")))
    if len(wanted) < 2:
        raise ValidationError({"ids": "Name at least two different runs."})
    runs = compared(caller(request), wanted)
    if len(runs) < len(wanted):
        raise Http404("There is no such run.")
    return runs
