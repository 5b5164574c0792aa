"""Every limit ends a run for good: what was spent stands in the database, so a restart forgets none of it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationStatus, Run, RunState, Team
from optimizer.queries.budgets import Budget
from runners.job import Failure, JobResult, JobSpec, StageResult, Status
from tests.factories import drive, failed_result, fake_evaluate, make_run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("limit", "spent", "said"),
    [
        ({"usd": Decimal("2")}, {"spent_usd": Decimal("2")}, "2 dollars"),
        ({"tokens": 1000}, {"spent_tokens": 1000}, "1000 tokens"),
        ({"device_minutes": 1.0}, {"spent_device_s": 60.0}, "1 device minutes"),
        ({"evaluations": 3}, {"spent_evaluations": 3}, "3 evaluations"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_limit_that_is_reached_starts_no_kernel_and_ends_the_run(
    team: Team, limit: dict[str, Any], spent: dict[str, Any], said: str
) -> None:
    run = make_run(team, budget=Budget(**{"evaluations": 50, **limit}))
    advance(run.pk)
    Run.objects.filter(pk=run.pk).update(**spent)
    run = drive(run)
    assert run.state == RunState.FINISHED and said in run.stop_reason
    assert not run.kernels.filter(author_kind="tuner").exists()


@pytest.mark.parametrize(
    ("limit", "spent"),
    [
        ({"usd": Decimal("2")}, {"spent_usd": Decimal("1.7")}),
        ({"tokens": 1000}, {"spent_tokens": 850}),
        ({"device_minutes": 1.0}, {"spent_device_s": 51.0}),
    ],
    ids=["dollars", "tokens", "device minutes"],
)
def test_every_limit_warns_once_at_its_marks(team: Team, limit: dict[str, Any], spent: dict[str, Any]) -> None:
    run = make_run(team, budget=Budget(**{"evaluations": 4000, **limit}))
    advance(run.pk)
    Run.objects.filter(pk=run.pk).update(**spent)
    for _ in range(3):
        drive(run, rounds=1)
    (kind,) = limit
    warned = run.events.filter(type="budget.warned", payload__kind=kind)
    assert list(warned.values_list("payload__percent", flat=True)) == [80]


def test_device_minutes_are_booked_for_failures_too_and_building_is_none(team: Team) -> None:
    def fail(spec: JobSpec, **_more: Any) -> JobResult:
        result = failed_result(spec, Status.INCORRECT)
        return replace(result, stages=[StageResult("build", 7.0), StageResult("correctness", 1.5)])

    run = drive(make_run(team), fail)
    assert run.spent_device_s == 1.5 * Evaluation.objects.filter(kernel__run=run).count() > 0


def test_what_the_kernels_did_not_cause_costs_neither_evaluations_nor_device_time(team: Team) -> None:
    def baseline_breaks(spec: JobSpec, **more: Any) -> JobResult:
        if spec.candidate.tunables:
            failure = Failure("baseline", "timing", "crashed")
            return JobResult(
                spec.job_id, Status.CRASHED, failures=[failure], stages=[StageResult("timing", 100.0)],
            )  # fmt: skip
        return fake_evaluate(spec, **more)

    run = drive(make_run(team), baseline_breaks, rounds=6)
    broken = Evaluation.objects.filter(kernel__run=run, status=EvaluationStatus.CRASHED)
    assert broken.count() >= 3 and all(one.device_s == 100.0 for one in broken)
    assert run.spent_evaluations == 0 and run.spent_device_s < 100.0
