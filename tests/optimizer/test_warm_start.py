"""A run begins from the best of earlier runs that its team may see, and says so."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import pytest

from optimizer.actions.run import Budget, do_clone_run
from optimizer.models import AuthorKind, Run, RunEvent, RunState, Target, Team, TeamRole, User
from optimizer.reports.facts import facts_of
from optimizer.reports.markdown import markdown_report
from runners.job import Effort, JobResult, JobSpec
from runners.tunables import parse
from tests.factories import correct_result, drive, fake_evaluate, make_run, make_team, make_user

pytestmark = pytest.mark.django_db


def begun_with(run: Run) -> list[dict[str, int]]:
    """The kernels of earlier runs with which a run began."""
    found = run.kernels.filter(meta__has_key="earlier").order_by("number")
    assert all(kernel.author_kind == AuthorKind.SEED for kernel in found)
    return [kernel.meta["earlier"] for kernel in found]


def another(run: Run, user: User | None = None, **changes: Any) -> Run:
    """A further run of the same team, advanced as far as its seeds."""
    return drive(make_run(run.team, user, **changes), rounds=1)


def test_the_second_run_begins_with_the_first_ones_best_and_its_tuned_values(finished: Run) -> None:
    best = finished.best_kernel
    assert best is not None and best.author_kind == AuthorKind.TUNER
    second = another(finished)
    assert begun_with(second) == [{"run": finished.pk, "number": best.number}]
    warm = second.kernels.get(key="seed.earlier1")
    assert parse(warm.source).defaults() == best.tunables and warm.tunables == {}
    assert second.spent_evaluations == 0, "what a run is given costs it nothing"


def test_a_clone_begins_with_the_best_of_its_original(finished: Run, member: User) -> None:
    clone = drive(do_clone_run(member, finished), rounds=1)
    assert [one["run"] for one in begun_with(clone)] == [finished.pk]


def test_the_run_and_its_report_name_what_it_began_with(finished: Run) -> None:
    second = drive(make_run(finished.team))
    assert finished.best_kernel is not None
    named = f"#{finished.best_kernel.number} of run {finished.pk}"
    notes = RunEvent.objects.filter(run=second, type="run.note").values_list("payload__text", flat=True)
    assert f"Warm start with the best of earlier runs: {named}." in notes
    assert facts_of(second).warm_start == [named]
    assert "Warm start" in markdown_report(facts_of(second))
    assert "Warm start" not in markdown_report(facts_of(finished)).partition("## Settings")[0]


def test_a_run_may_be_started_without(finished: Run) -> None:
    assert begun_with(another(finished, settings={"warm_start": False})) == []
    assert begun_with(another(finished, settings={"preset": "as_published"})) == []


def test_nothing_comes_from_another_team_target_or_problem(finished: Run) -> None:
    stranger = drive(make_run(make_team()), rounds=1)
    assert begun_with(stranger) == []
    elsewhere = another(finished, target=Target.objects.get(key="sm_90"))
    assert begun_with(elsewhere) == []


def test_a_private_runs_kernel_reaches_no_run_that_others_see(team: Team, member: User) -> None:
    private = drive(make_run(team, member, is_private=True))
    assert private.best_kernel is not None
    assert begun_with(another(private, member)) == []
    assert begun_with(another(private, make_user(team, TeamRole.OWNER), is_private=True)) == []
    assert [one["run"] for one in begun_with(another(private, member, is_private=True))] == [private.pk]


def test_equal_kernels_of_two_runs_are_taken_once(finished: Run) -> None:
    drive(make_run(finished.team, settings={"warm_start": False}))
    assert len(begun_with(another(finished))) == 1


# the roofline


def at_roofline(share: float):
    def evaluate(spec: JobSpec, **more: Any) -> JobResult:
        if spec.effort == Effort.CONFIRM:
            return fake_evaluate(spec, **more)
        result = correct_result(spec, 50.0)
        return changed(result, cases=[changed(case, roofline_share=share) for case in result.cases])

    return evaluate


def test_a_run_ends_where_the_best_kernel_reaches_the_roofline(team: Team) -> None:
    run = drive(make_run(team, budget=Budget(evaluations=20)), at_roofline(0.96))
    assert run.state == RunState.FINISHED
    assert run.stop_reason == "The best kernel reaches 96 % of the measured roofline."
    assert run.spent_evaluations == 0
    short = drive(make_run(team, budget=Budget(evaluations=3)), at_roofline(0.94))
    assert short.spent_evaluations == 3
    settings = {"stop_at_roofline": 0}
    assert drive(make_run(team, settings=settings), at_roofline(0.99)).spent_evaluations == 4
