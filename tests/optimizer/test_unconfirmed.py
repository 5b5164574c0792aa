"""A win that the referee's clock did not confirm is shown, said to be unconfirmed, and leads nowhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.test import Client

from optimizer.actions.leaders import do_rerank_leaders
from optimizer.agents.delimiters import Delimiters
from optimizer.agents.sections import outcome
from optimizer.charts.curve import curve, points_of
from optimizer.models import Evaluation, EvaluationStatus, Run, RunEvent, User
from optimizer.queries.comparison import outcomes_of
from optimizer.runs.history import history_of
from runners.job import JobResult, JobSpec, Verdict
from tests.factories import correct_result, drive, fake_evaluate, make_run, make_team, make_user

pytestmark = pytest.mark.django_db


def boast(spec: JobSpec, **more: Any) -> JobResult:
    """Claim that the first written kernel is forty times faster, which the referee does not confirm."""
    if spec.candidate.tunables and not boast.told:  # type: ignore[attr-defined]
        boast.told = True  # type: ignore[attr-defined]
        honest = correct_result(spec, 5.0)
        assert honest.speedup is not None
        same = dataclasses.replace(honest.speedup, verdict=Verdict.SAME)
        return dataclasses.replace(honest, flags=["unconfirmed"], verdict=Verdict.SAME, speedup=same)
    return fake_evaluate(spec, **more)


@pytest.fixture(scope="module")
def finished_run(module_rows: None) -> Run:
    """Make the rows of a run with a claim that was not confirmed, once for the module. Tests ask for `run`."""
    boast.told = False  # type: ignore[attr-defined]
    team = make_team()
    return drive(make_run(team, make_user(team)), boast)


@pytest.fixture
def run(finished: Run) -> Run:
    """Return a run with a claim that was not confirmed."""
    return finished


def test_an_unconfirmed_claim_does_not_lead(run: Run) -> None:
    boaster = run.kernels.get(evaluation__unconfirmed=True)
    assert boaster.evaluation.speedup == 40
    assert run.best_kernel is not None and run.best_kernel != boaster
    assert run.best_speedup is not None and run.best_speedup < 40


def test_strategies_build_nothing_on_its_times(run: Run) -> None:
    history = history_of(run)
    boaster = history.kernel(run.kernels.get(evaluation__unconfirmed=True).key)
    assert boaster is not None and boaster.correct
    assert (boaster.time_us, boaster.times_us) == (None, {})
    assert history.best() not in (None, boaster)
    assert "no times that count" in outcome(boaster, Delimiters("x"))


def test_the_curve_shows_it_and_does_not_follow_it(run: Run) -> None:
    points = points_of(run)
    assert max(point.speedup or 0 for point in points) == 40
    assert max(point.best or 0 for point in points) < 40
    assert "Claim not confirmed" in [trace.name for trace in curve(points, "evaluations", "eager").data]


def test_a_comparison_does_not_count_it_as_a_win(run: Run) -> None:
    (outcome,) = outcomes_of([run])
    assert outcome.geomean is not None and outcome.geomean.high < 40


def test_its_page_and_the_runs_page_say_so(client: Client, member: User, run: Run) -> None:
    client.force_login(member)
    number = run.kernels.get(evaluation__unconfirmed=True).number
    assert b"Not confirmed" in client.get(f"/runs/{run.pk}/kernels/{number}/").content
    table = client.get(f"/runs/{run.pk}/kernels/?sort=-speedup").content.decode()
    assert "Not confirmed" in table
    rows = table.split("<tbody>")[1].split("</tr>")
    assert f"/kernels/{number}/" not in rows[0], "sorting by speedup must not put it first"


def test_a_run_that_ended_under_older_rules_is_ranked_anew_once_and_nobody_is_told_of_a_record(run: Run) -> None:
    best, events = run.best_kernel, RunEvent.objects.filter(run=run, type="best.changed").count()
    figures = (run.best_speedup, run.best_speedup_low, run.best_speedup_high)
    boaster = run.kernels.get(evaluation__unconfirmed=True)
    for wrong in ({"best_kernel": boaster, "best_speedup": 40.0}, {"best_kernel": None, "best_speedup": None}):
        Run.objects.filter(pk=run.pk).update(**wrong)
        assert do_rerank_leaders() == 1
        assert do_rerank_leaders() == 0
        run.refresh_from_db()
        assert run.best_kernel == best
        assert (run.best_speedup, run.best_speedup_low, run.best_speedup_high) == figures
    assert RunEvent.objects.filter(run=run, type="best.changed").count() == events
    assert RunEvent.objects.filter(run=run, type="run.note", payload__text__icontains="ranked anew").count() == 2


def test_where_only_a_refused_claim_was_made_nobody_leads(run: Run) -> None:
    boaster = run.kernels.get(evaluation__unconfirmed=True)
    Evaluation.objects.filter(kernel__run=run).exclude(kernel=boaster).update(status=EvaluationStatus.INCORRECT)
    Run.objects.filter(pk=run.pk).update(best_kernel=boaster, best_speedup=40.0)
    do_rerank_leaders()
    run.refresh_from_db()
    assert (run.best_kernel, run.best_speedup, run.best_speedup_low) == (None, None, None)
