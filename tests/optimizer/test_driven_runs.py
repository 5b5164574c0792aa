"""Test how tests get runs: copies are what a drive leaves behind, and a drive stops where nothing changes any more."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.loop.advance import Outcome, advance
from optimizer.models import AuditEntry, Run, Team, TeamRole, User
from optimizer.queries.budgets import Budget
from tests import factories
from tests.driven_runs import make_driven_run, make_finished_run
from tests.factories import drive, make_run, make_team, make_user

pytestmark = pytest.mark.django_db


def told(run: Run) -> list[Any]:
    """Return what happened in a run, without keys and times of day."""
    kernels = run.kernels.order_by("number")
    return [
        (run.state, run.stop_reason, run.seed, run.spent_evaluations, run.best_speedup, run.title),
        [(one.number, one.key, one.source, one.evaluation.time_us, one.evaluation.status) for one in kernels],
        list(run.events.order_by("seq").values_list("seq", "type")),
        list(run.calls.order_by("pk").values_list("key", "state", "context")),
        list(AuditEntry.objects.filter(team_id=run.team_id).order_by("pk").values_list("action", flat=True)),
    ]


def owned() -> tuple[Team, User]:
    team = make_team()
    return team, make_user(team, TeamRole.OPERATOR)


def test_a_copy_is_what_a_drive_leaves_behind_in_the_team_of_whoever_asks() -> None:
    owners = [owned() for _ in range(3)]
    driven, *copies = drive(make_run(*owners[0])), *(make_finished_run(*both) for both in owners[1:])
    assert [(one.team, one.created_by) for one in (driven, *copies)] == owners
    assert copies[0].pk != copies[1].pk
    assert told(copies[0]) == told(copies[1]) == told(driven)
    for team, user in owners:
        audit = AuditEntry.objects.filter(team_id=team.pk)
        assert {(one.actor_id, one.actor_name, one.team_name) for one in audit} == {(user.pk, str(user), team.name)}


def test_a_copy_of_a_waiting_run_goes_on_like_the_run_itself() -> None:
    budget = Budget(evaluations=3)
    driven, copy = drive(make_run(budget=budget), rounds=2), make_driven_run(2, budget=budget)
    assert told(copy) == told(driven) and copy.state == "running"
    assert told(drive(copy)) == told(drive(driven)) and copy.state == "finished"


def test_a_run_that_waits_is_not_advanced_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def noted(pk: int) -> Outcome:
        calls.append(pk)
        return advance(pk)

    monkeypatch.setattr(factories, "advance", noted)
    run = drive(make_run(strategy="sampling", providers={"default": {"provider": "inbox"}}))
    assert run.state == "running" and run.calls.count() == 1 and len(calls) < 6
