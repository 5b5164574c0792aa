"""Starting and steering runs: who may, what is refused, and which state follows which."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.http import Http404
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from optimizer import queue
from optimizer.access import access_run, may, offers
from optimizer.actions.demo import do_start_demo
from optimizer.actions.job import do_start_job
from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.run import do_clone_run, do_pause_run, do_resume_run, do_stop_run
from optimizer.loop import advance
from optimizer.models import Job, Membership, Problem, ProblemVersion, Run, RunEvent, RunState, TeamRole
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget
from optimizer.upkeep.sweep import sweep
from tests.factories import QUEUE, drive, make_run, make_team, make_user

pytestmark = pytest.mark.django_db


def refusal(**changes: Any) -> set[str]:
    with pytest.raises(ValidationError) as caught:
        make_run(**changes)
    assert not Run.objects.exists()
    return set(caught.value.message_dict)


@pytest.mark.parametrize("role", [None, TeamRole.VIEWER, TeamRole.REVIEWER])
def test_who_may_not_operate_may_not_start_a_run(role: TeamRole | None) -> None:
    team = make_team()
    user = make_user(team, role) if role else make_user()
    assert refusal(team=team, user=user) == {"team"}


def test_limits_below_zero_are_named_by_their_field() -> None:
    budget = Budget(evaluations=0, minutes=-1.0, usd=Decimal(-1), tokens=-5)
    assert refusal(budget=budget) == {"budget_evaluations", "budget_minutes", "budget_usd", "budget_tokens"}


def test_unknown_strategies_settings_baselines_and_dispatchers_are_refused() -> None:
    assert refusal(strategy="magic") == {"strategy"}
    assert refusal(settings={"sampler": "oracle"}) == {"settings"}
    assert refusal(baseline="numpy", dispatcher="pigeon") == {"baseline", "dispatcher"}


def test_a_clone_has_everything_but_the_fate() -> None:
    run = drive(make_run(settings={"sampler": "random"}, seed=9))
    clone = do_clone_run(None, run)

    assert clone.cloned_from == run
    assert (clone.settings, clone.seed, clone.budget_evaluations) == (run.settings, 9, run.budget_evaluations)
    assert (clone.state, clone.spent_evaluations, clone.last_seq) == (RunState.PENDING, 0, 0)


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        (TeamRole.VIEWER, {"view"}),
        (TeamRole.REVIEWER, {"view", "comment"}),
        (TeamRole.OPERATOR, {"view", "comment", "operate"}),
        (TeamRole.OWNER, {"view", "comment", "operate", "own"}),
        (None, set()),
    ],
)
def test_a_role_may_do_its_own_and_what_comes_before_it(role: TeamRole | None, verbs: set[str]) -> None:
    run = make_run()
    user = make_user(run.team, role) if role else make_user(make_team())

    def may(verb: Any) -> bool:
        try:
            return access_run(user, run.pk, verb) == run
        except Http404:
            return False

    assert {verb for verb in ("view", "comment", "operate", "own") if may(verb)} == verbs


def test_a_page_reads_a_role_once_for_a_run_and_an_action_reads_it_again(
    django_assert_num_queries: Any,
) -> None:
    run = make_run()
    user = make_user(run.team, TeamRole.REVIEWER)
    assert offers(user, run, "comment")
    with django_assert_num_queries(0):
        assert offers(user, run, "view") and not offers(user, run, "operate")
    Membership.objects.filter(user=user).update(role=TeamRole.OWNER)
    assert may(user, run, "own") and access_run(user, run.pk, "own") == run
    Membership.objects.filter(user=user).delete()
    assert not may(user, run, "view")
    with pytest.raises(Http404):
        access_run(user, run.pk, "view")


def test_a_private_run_is_its_starters_and_the_owners() -> None:
    team = make_team()
    starter, colleague = make_user(team), make_user(team)
    owner = make_user(team, TeamRole.OWNER)
    run = make_run(team, starter, is_private=True)

    assert access_run(starter, run.pk, "operate") == run
    assert access_run(owner, run.pk, "own") == run
    with pytest.raises(Http404):
        access_run(colleague, run.pk, "view")


def test_syncing_problems_twice_adds_nothing_and_a_changed_one_gets_a_new_version() -> None:
    do_sync_shipped_problems()
    versions = ProblemVersion.objects.count()
    do_sync_shipped_problems()
    assert ProblemVersion.objects.count() == versions

    ProblemVersion.objects.filter(problem__slug="softmax_rows").update(content_hash="older")
    do_sync_shipped_problems()
    assert Problem.objects.get(slug="softmax_rows").latest().number == 2


def test_the_demo_tunes_on_this_processor_and_replays_recorded_agents_beside_it() -> None:
    tuned, replayed = do_start_demo()
    assert (tuned.is_demo, tuned.strategy, tuned.target.key, tuned.budget_evaluations) == (True, "tune", "cpu", 40)
    assert (replayed.is_demo, replayed.strategy, replayed.target.key) == (True, "scientist", "cpu")
    assert replayed.providers["default"]["provider"] == "replay"
    assert "recorded answers" in replayed.title
    assert replayed.budget_evaluations and replayed.budget_evaluations >= 9


def test_the_command_starts_a_run_and_answers_in_json() -> None:
    out = StringIO()
    call_command(
        "run", "--problem", "softmax_rows", "--evaluations", "3", "--set", "sampler=random", "--json", stdout=out
    )

    answer = json.loads(out.getvalue())
    run = Run.objects.get(pk=answer["run"])
    assert (answer["state"], run.budget_evaluations, run.settings) == ("pending", 3, {"sampler": "random"})


def test_the_command_names_what_there_is_instead_of_what_was_asked_for() -> None:
    with pytest.raises(CommandError, match="softmax_rows"):
        call_command("run", "--problem", "nothing")
    with pytest.raises(CommandError, match="settings"):
        call_command("run", "--problem", "softmax_rows", "--set", "colour=red")


class RunMachine(RuleBasedStateMachine):
    """Buttons pressed in any order, between steps of the run."""

    @initialize()
    def start(self) -> None:
        self.run = make_run(budget=Budget(evaluations=3))
        self.expected = "pending"

    @rule(action=st.sampled_from([do_pause_run, do_resume_run, do_stop_run]))
    def press(self, action: Any) -> None:
        allowed = {
            do_pause_run: {"pending": "paused", "running": "paused"},
            do_resume_run: {"paused": "running"},
            do_stop_run: {"pending": "stopping", "running": "stopping", "paused": "stopping"},
        }[action]
        if self.expected in allowed:
            action(None, self.run)
            self.expected = allowed[self.expected]
        else:
            with pytest.raises(RunTransitionError):
                action(None, self.run)

    @rule()
    def go_on(self) -> None:
        # A site sweeps every few seconds: that ends what was cancelled while its worker was lost.
        sweep()
        self.run = drive(self.run, rounds=1)
        follows = {
            "pending": {"running"},
            "running": {"running", "finished"},
            "paused": {"paused"},
            "stopping": {"stopped"},
        }
        assert self.run.state in follows.get(self.expected, {self.expected})
        self.expected = self.run.state

    @rule()
    def strategy_breaks(self) -> None:
        """Break the strategy: a bug ends a run that runs, with its reason, and no other."""
        with patch("optimizer.loop.advance.strategy_of", side_effect=RuntimeError("bug")):
            advance(self.run.pk)
        self.run.refresh_from_db()
        follows = {"pending": {"running"}, "running": {"running", "failed", "finished"}}
        assert self.run.state in follows.get(self.expected, {self.expected, "stopped"})
        assert self.run.state != "failed" or "bug" in self.run.stop_reason
        self.expected = self.run.state

    @rule()
    def worker_is_lost(self) -> None:
        """Lose the worker of a job under way; the run stays what it is and loses nothing."""
        claimed = queue.claim(QUEUE, "lost")
        if claimed is not None:
            do_start_job(claimed.job_id, claimed.fence)
            # The clock of the test's transaction stands still, so that the lease has to end before it began.
            Job.objects.filter(pk=claimed.job_id).update(lease_until=timezone.now() - dt.timedelta(days=1))
            sweep()

    @invariant()
    def events_are_numbered_without_a_gap_and_a_run_that_ended_has_nothing_open(self) -> None:
        if hasattr(self, "run"):
            row = Run.objects.get(pk=self.run.pk)
            assert list(row.events.order_by("seq").values_list("seq", flat=True)) == list(
                range(1, row.last_seq + 1)
            )
            if row.state in ("finished", "stopped"):
                assert not Job.objects.filter(
                    evaluation__kernel__run=row, state__in=["queued", "running"], cancel_requested=False
                ).exists()

    @invariant()
    def the_row_is_where_it_should_be_and_its_clock_runs_only_while_it_runs(self) -> None:
        if hasattr(self, "run"):
            row = Run.objects.get(pk=self.run.pk)
            assert row.state == self.expected
            assert (row.running_since is not None) == (row.state == "running")
            assert (row.finished_at is not None) == RunState(row.state).is_terminal
            assert row.spent_evaluations <= 3
            newest = RunEvent.objects.filter(run=row, type="run.state").order_by("-seq").first()
            assert (newest.payload["state"] if newest else "pending") == row.state


@pytest.mark.slow
def test_buttons_pressed_in_any_order_lead_only_where_they_may() -> None:
    run_state_machine_as_test(
        RunMachine,
        settings=settings(
            max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
