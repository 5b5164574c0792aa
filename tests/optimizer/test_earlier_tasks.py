"""Test that a search starts from earlier measurements of the same parameters, and that the run says so."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from optimizer.models import ProblemVersion, Run, RunEvent, Target, TeamRole, User
from optimizer.queries.budgets import Budget
from optimizer.queries.earlier_tasks import earlier_tasks
from optimizer.runs.plan import plan_of
from tests.factories import drive, make_run, make_team, make_user

pytestmark = pytest.mark.django_db
MEASURED = 9


@pytest.fixture(scope="module")
def finished_run(module_rows: None) -> Run:
    """Make a run in which enough configurations were measured, once for the module. Tests ask for `finished`."""
    team = make_team()
    settings = {"sampler": "random", "concurrency": MEASURED, "confirm": False}
    user = make_user(team, TeamRole.OPERATOR)
    return drive(make_run(team, user, budget=Budget(evaluations=MEASURED), settings=settings))


def later(run: Run, user: User | None = None, **changes: Any) -> Run:
    """Make a run of the same team on the next version of the problem, whose cases are others."""
    known = run.problem_version
    following, _ = ProblemVersion.objects.get_or_create(
        problem=known.problem, number=known.number + 1,
        defaults={"content_hash": "other cases", "bundle": known.bundle, "languages": known.languages},
    )  # fmt: skip
    start: dict[str, Any] = {"team": run.team, "problem_version": following, "budget": Budget(evaluations=2)}
    return make_run(user=user, **(start | changes))


def counts(run: Run) -> dict[str, int]:
    return {task.title: len(task.measured) for task in earlier_tasks(run)}


def notes_of(run: Run) -> list[str]:
    notes = RunEvent.objects.filter(run=run, type="run.note").values_list("payload__text", flat=True)
    return [note for note in notes if "starts from" in note]


def test_the_run_and_its_pages_name_the_measurements_that_it_starts_from(finished: Run, pages: Client) -> None:
    run = drive(later(finished), rounds=2)
    said = f"{MEASURED} measurements of version 1 of the problem on {finished.target.title}"
    assert notes_of(run) == [f"The search starts from {said}."], "once, however many decisions there are"
    whys = [line.why for line in plan_of(run).lines if line.number is None]
    assert whys and all(why.endswith(f"which starts from {said}") for why in whys)
    for page in ("plan", "parameters"):
        assert said in pages.get(f"/runs/{run.pk}/{page}/").content.decode()


def test_transfer_may_be_switched_off_and_another_sampler_claims_none(finished: Run) -> None:
    for settings in ({"transfer": False}, {"sampler": "random"}):
        run = drive(later(finished, settings=settings), rounds=2)
        assert notes_of(run) == []
        assert not any("starts from" in line.why for line in plan_of(run).lines)


def test_another_target_is_a_task_and_the_same_cases_on_the_same_target_are_none(finished: Run) -> None:
    elsewhere = make_run(finished.team, target=Target.objects.get(key="gfx942"))
    assert counts(elsewhere) == {f"on {finished.target.title}": MEASURED}
    assert counts(make_run(finished.team)) == {}


def test_what_others_may_not_see_teaches_them_nothing(finished: Run) -> None:
    assert counts(later(finished, team=make_team())) == {}
    Run.objects.filter(pk=finished.pk).update(is_private=True)
    assert counts(later(finished)) == {}
    assert counts(later(finished, finished.created_by, is_private=True)), "the same person's private run may"


def test_what_is_measured_after_a_run_was_created_does_not_enter_it(finished: Run) -> None:
    run = later(finished)
    Run.objects.filter(pk=run.pk).update(created_at=finished.created_at)
    assert counts(run) == {}
