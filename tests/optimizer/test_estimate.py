"""Test that the estimate before a run's start comes from runs of its kind, and from nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from optimizer.models import LlmCall, Problem, Run, RunState, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.estimate import Estimate, PastRun, Range, estimate, estimate_run
from tests.factories import make_run, make_team, make_user

QUICK = PastRun(evaluations=10, minutes=5.0, device_minutes=1.0, tokens=1000, usd=0.1)
SLOW = PastRun(evaluations=10, minutes=20.0, device_minutes=4.0, tokens=3000, usd=0.3)


def ended_run(team: Team, **changes: Any) -> Run:
    """Return a run that took six minutes and 12 cents for its four evaluations."""
    settings = {name: changes.pop(name) for name in ("strategy", "providers") if name in changes}
    run = make_run(team, **settings)
    values = {"state": RunState.FINISHED, "spent_evaluations": 4, "active_s": 360.0, "spent_usd": Decimal("0.12")}
    Run.objects.filter(pk=run.pk).update(**(values | {"spent_tokens": 4000} | changes))
    return run


def estimated(user: User, strategy: str = "tune", slug: str = "softmax_rows", **more: Any) -> Estimate:
    """Return the estimate for eight evaluations on the CPU."""
    problem, target = Problem.objects.get(slug=slug), Target.objects.get(key="cpu")
    return estimate_run(problem, target, strategy, Budget(evaluations=8), seen_by=user, **more)


def test_nothing_is_said_without_a_past() -> None:
    assert estimate([], Budget(evaluations=9)) == Estimate(based_on=0, likeness="")


def test_a_range_lies_between_the_rates_of_the_past_times_the_evaluations() -> None:
    found = estimate([QUICK, SLOW], Budget(evaluations=20))
    assert found.evaluations == 20
    assert found.minutes is not None and 10.0 < found.minutes.low < found.minutes.high < 40.0
    assert (found.minutes.low, found.minutes.high) == pytest.approx((13.0, 37.0))


def test_one_run_gives_its_own_rates() -> None:
    found = estimate([SLOW], Budget(evaluations=5))
    assert found.minutes == Range(10.0, 10.0)
    assert found.usd is not None and (found.usd.low, found.usd.high) == pytest.approx((0.15, 0.15))
    assert found.tokens == Range(1500.0, 1500.0)


def test_a_limit_caps_what_it_limits() -> None:
    found = estimate([QUICK, SLOW], Budget(evaluations=100, usd=Decimal("1.5")))
    assert found.usd is not None and found.usd.high == 1.5
    assert found.tokens is not None and found.tokens.high > 20_000


def test_minutes_limit_the_evaluations() -> None:
    assert estimate([QUICK], Budget(minutes=3.0)).evaluations == 6
    assert estimate([QUICK], Budget(minutes=3.0, evaluations=4)).evaluations == 4


def test_without_limits_such_runs_say_how_many_evaluations() -> None:
    assert estimate([QUICK, SLOW], Budget()).evaluations == 10


def test_an_unknown_price_gives_no_dollars_and_keeps_the_rest() -> None:
    found = estimate([PastRun(2, 1.0, 0.5, 100, None)], Budget(evaluations=4))
    assert found.usd is None and found.minutes == Range(2.0, 2.0)


@pytest.mark.django_db
def test_only_ended_runs_of_the_same_kind_count() -> None:
    team = make_team()
    user = make_user(team)
    ended_run(team)
    ended_run(team, state=RunState.RUNNING, active_s=9e9)
    found = estimated(user)
    assert (found.based_on, found.likeness) == (1, "same problem, target and strategy")
    assert found.minutes == Range(12.0, 12.0)
    assert found.usd is not None and (found.usd.low, found.usd.high) == pytest.approx((0.24, 0.24))


@pytest.mark.django_db
def test_another_problem_stands_in_and_is_named_as_such() -> None:
    team = make_team()
    user = make_user(team)
    ended_run(team)
    assert estimated(user, slug="layernorm_residual").likeness == "same target and strategy, other problems"
    other = estimated(user, strategy="stark")
    assert other.likeness == "same problem and target, other strategies"
    assert (other.minutes, other.usd, other.tokens) == (None, None, None) and other.device_minutes is not None


@pytest.mark.django_db
def test_the_first_run_of_a_problem_learns_device_time_from_any_run_on_the_target() -> None:
    team = make_team()
    user = make_user(team)
    ended_run(team, state=RunState.RUNNING, spent_device_s=60.0)
    found = estimated(user, slug="layernorm_residual", strategy="stark")
    assert (found.based_on, found.likeness) == (1, "same target, other problems and strategies")
    assert (found.minutes, found.usd) == (None, None) and found.device_minutes == Range(2.0, 2.0)


@pytest.mark.django_db
def test_an_outsider_learns_nothing_of_a_teams_runs() -> None:
    ended_run(make_team())
    assert estimated(make_user(make_team())).based_on == 0


@pytest.mark.django_db
def test_runs_with_the_same_models_go_first() -> None:
    team = make_team()
    user = make_user(team)
    inbox = {"default": {"provider": "inbox"}}
    ended_run(team, strategy="stark", providers=inbox, active_s=60.0)
    other = ended_run(team, strategy="stark", providers=inbox, active_s=6000.0)
    Run.objects.filter(pk=other.pk).update(providers={"default": {"provider": "house", "model": "big"}})
    assert estimated(user, "stark", providers=inbox).minutes == Range(2.0, 2.0)
    assert estimated(user, "stark").based_on == 2


@pytest.mark.django_db
def test_a_call_whose_price_nobody_knows_makes_its_runs_dollars_unknown() -> None:
    team = make_team()
    user = make_user(team)
    run = ended_run(team)
    LlmCall.objects.create(run=run, key="inbox", role="plan", provider="inbox", state="answered")
    assert estimated(user).usd is not None
    LlmCall.objects.create(run=run, key="house", role="plan", provider="house", state="answered")
    assert estimated(user).usd is None
