"""Test campaigns that are continued with larger budgets, and settled again."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from optimizer.actions.campaign import (
    Limits,
    NewConfiguration,
    do_pause_campaign,
    do_resume_campaign,
    do_stop_campaign,
)
from optimizer.actions.campaign_budget import do_continue_campaign
from optimizer.campaigns.advance import advance_campaign
from optimizer.events.notify import NewNotification, do_notify
from optimizer.models import (
    AuditAction,
    AuditEntry,
    CallState,
    Campaign,
    CampaignState,
    Evaluation,
    EvaluationPurpose,
    LlmCall,
    Notification,
    NotificationKind,
    Run,
    RunState,
    Team,
    User,
)
from optimizer.models.campaign import CampaignTransitionError
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration, total
from runners.job import Effort, JobResult, JobSpec, Status
from tests.campaigns import (
    drive_campaign,
    make_campaign,
    make_finished_campaign,
    make_settling_campaign,
    make_suite,
    tuned,
)
from tests.factories import correct_result, failed_result, fake_evaluate, make_team, make_user
from tests.rollback import rolled_back

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("shipped_problems")]
# `make_finished_campaign` gives its configurations two evaluations and one.
MORE = Budget(evaluations=4)


@dataclass(frozen=True)
class Continued:
    """Hold what was seen of a campaign that was continued to its second end."""

    waiting: int
    """The number of runs that waited to go on."""
    most: int
    """The largest number of runs that were active at once."""
    state: str
    spent: dict[int, int]
    """The evaluations of each run."""
    kernels: dict[int, tuple[int, int]]
    """The number of kernels of each run, before and after."""
    budgets: set[int]
    outcomes: set[str]
    timed: tuple[set[int], set[int]]
    """The runs whose winners were timed in each settling."""
    own: tuple[int | None, int | None]
    """The budgets of evaluations and tokens of the run to which a person had given limits of its own."""
    notifications: int
    logged: bool


@pytest.fixture(scope="module")
def continued(shipped_problems: None) -> Continued:
    """Continue a campaign to its end, once for the module, and leave no rows behind."""
    with rolled_back():
        return _continued(make_team())


def _continued(team: Team) -> Continued:
    member, campaign = make_user(team), make_finished_campaign(team)
    Campaign.objects.filter(pk=campaign.pk).update(created_by=member)
    # Its starter was told of the first end, some time ago.
    key = f"campaign-{campaign.pk}-"
    do_notify([member], NewNotification(NotificationKind.CAMPAIGN, f"{key}20260101000000", "It has ended.", "/"))
    own = _runs(campaign).order_by("pk")[0]
    Run.objects.filter(pk=own.pk).update(budget_evaluations=own.spent_evaluations, budget_tokens=50)
    kernels = {run.pk: run.kernels.count() for run in _runs(campaign)}
    timed = set(campaign.timings.values_list("kernel__run", flat=True))
    do_continue_campaign(member, campaign, MORE)
    waiting, most = campaign.cells.filter(is_continuing=True).count(), 0

    def ended(one: Campaign) -> bool:
        nonlocal most
        most = max(most, _runs(one).active().count())
        return one.state_choice.is_terminal

    drive_campaign(campaign, until=ended)
    own.refresh_from_db()
    logged = AuditEntry.objects.filter(action=AuditAction.CAMPAIGN_CONTINUED, actor_id=member.pk)
    return Continued(
        waiting=waiting,
        most=most,
        state=campaign.state,
        spent={run.pk: run.spent_evaluations for run in _runs(campaign)},
        kernels={run.pk: (kernels[run.pk], run.kernels.count()) for run in _runs(campaign)},
        budgets={one.budget["evaluations"] for one in campaign.configurations.all()},
        outcomes={cell.outcome for cell in results_of(campaign).cells},
        timed=(timed, set(campaign.timings.values_list("kernel__run", flat=True))),
        own=(own.budget_evaluations, own.budget_tokens),
        notifications=Notification.objects.filter(user=member, key__startswith=key).count(),
        logged=logged.exists(),
    )


def test_finished_runs_go_on_to_the_larger_budget_and_all_is_settled_again(continued: Continued) -> None:
    assert continued.waiting == len(continued.spent) == 4
    assert continued.state == CampaignState.FINISHED
    assert set(continued.spent.values()) == {4}
    assert all(after > before for before, after in continued.kernels.values())
    assert continued.budgets == {4}
    assert continued.outcomes == {"settled"}
    assert continued.timed == (set(continued.spent), set(continued.spent))
    assert continued.logged


def test_no_more_runs_go_on_at_once_than_the_campaign_allows(continued: Continued) -> None:
    assert continued.most == 1


def test_a_limit_that_a_person_has_given_a_run_is_not_lowered(continued: Continued) -> None:
    assert continued.own == (4, 50)
    assert set(continued.spent.values()) == {4}


def test_each_end_is_told(continued: Continued) -> None:
    assert continued.notifications == 2


def test_only_problems_with_other_winners_are_timed_again(team: Team) -> None:
    campaign, more = make_finished_campaign(team), Budget(evaluations=3)
    before = _timed(campaign)

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        # From here on one problem's kernels are faster than all before, and the other's are wrong.
        if spec.effort == Effort.CONFIRM:
            return fake_evaluate(spec, **options)
        if spec.problem.name == "softmax_rows":
            return failed_result(spec, Status.INCORRECT, "wrong")
        return correct_result(spec, 1.0)

    do_continue_campaign(None, campaign, more)
    drive_campaign(campaign, evaluate)
    after = _timed(campaign)
    assert after["softmax_rows"] == before["softmax_rows"]
    assert not set(after["layernorm_residual"]) & set(before["layernorm_residual"])


def test_nothing_counts_until_it_is_settled_again(team: Team) -> None:
    campaign = make_finished_campaign(team)
    assert all(cell.is_settled for cell in results_of(campaign).cells)
    do_continue_campaign(None, campaign, MORE)
    campaign.refresh_from_db()
    cells = results_of(campaign).cells
    assert {cell.outcome for cell in cells} == {"waiting"}
    assert not any(cell.counts for cell in cells)
    assert total(spent_by_configuration(campaign)).done == 0


def test_a_campaign_under_way_gives_its_running_and_waiting_runs_the_larger_budget_too(team: Team) -> None:
    campaign = make_campaign(team)
    drive_campaign(campaign, until=lambda one: one.cells.filter(is_closed=True).exists())
    drive_campaign(campaign, until=lambda one: _runs(one).active().exists())
    do_continue_campaign(None, campaign, Budget(evaluations=3))
    assert campaign.cells.filter(is_continuing=True).exists()
    assert campaign.cells.filter(run=None).exists()
    drive_campaign(campaign)
    assert {run.spent_evaluations for run in _runs(campaign)} == {3}
    assert campaign.state == CampaignState.FINISHED


def test_a_limit_that_is_reached_meanwhile_lets_no_run_count_that_had_less_than_the_others(team: Team) -> None:
    campaign = make_finished_campaign(team)
    spent = total(spent_by_configuration(campaign)).device_s / 60
    do_continue_campaign(None, campaign, MORE, {"device_minutes": 1.2 * spent})
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    results = {cell.run: cell for cell in results_of(campaign).cells}
    less = [results[run.pk] for run in _runs(campaign) if run.spent_evaluations < 4]
    assert less and {cell.outcome for cell in less} == {"stopped early"}
    assert all("limit" in cell.why and not cell.counts for cell in less)
    assert {run.state for run in _runs(campaign)} == {RunState.FINISHED, RunState.STOPPED}
    # Those that had not gone on can be continued once there is room; those that were stopped cannot.
    behind = campaign.cells.filter(is_behind=True).count()
    do_continue_campaign(None, campaign, MORE, {"device_minutes": None})
    assert behind and campaign.cells.filter(is_continuing=True).count() == behind
    assert not campaign.cells.filter(is_behind=True).exists()
    with pytest.raises(ValidationError, match="have 4 evaluations already"):
        do_continue_campaign(None, campaign, MORE)


def test_stopping_a_continued_campaign_leaves_waiting_runs_as_they_ended(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(member, campaign, MORE)
    advance_campaign(campaign.pk)
    do_stop_campaign(member, campaign)
    drive_campaign(campaign)
    assert campaign.state == CampaignState.STOPPED
    assert campaign.cells.filter(is_closed=True).count() == campaign.cells.count()
    assert campaign.cells.filter(is_behind=True).count() == campaign.cells.count() - 1
    assert _runs(campaign).filter(state=RunState.STOPPED).count() == 1
    with pytest.raises(CampaignTransitionError, match="stopped and cannot be continued"):
        do_continue_campaign(member, campaign, MORE)


def test_pausing_a_continued_campaign_starts_nothing_until_it_is_resumed(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(member, campaign, MORE)
    do_pause_campaign(member, campaign)
    advance_campaign(campaign.pk)
    assert not _runs(campaign).active().exists()
    with pytest.raises(CampaignTransitionError):
        do_continue_campaign(member, campaign, Budget(evaluations=9))


@pytest.mark.parametrize(
    ("budget", "limits", "said"),
    [
        (Budget(), None, "at least one larger limit"),
        (Budget(evaluations=2), None, "have 2 evaluations already"),
        (Budget(evaluations=9, tokens=5), None, "have no limit of tokens"),
        (Budget(evaluations=2**31), None, "at most 2,147,483,647"),
        (Budget(evaluations=9), {"tokens": -1}, "above zero"),
        (Budget(evaluations=9), {"tokens": 2**63}, "at most"),
        (Budget(evaluations=9), {"device_minutes": 1e-9}, "leaves no room"),
    ],
)
def test_a_budget_that_lets_nothing_go_on_is_refused(
    team: Team, budget: Budget, limits: dict[str, Any] | None, said: str
) -> None:
    campaign = make_finished_campaign(team)
    with pytest.raises(ValidationError, match=said):
        do_continue_campaign(None, campaign, budget, limits)
    campaign.refresh_from_db()
    assert campaign.state == CampaignState.FINISHED
    assert campaign.settling_at is not None
    assert not campaign.cells.filter(is_continuing=True).exists()


def test_a_campaign_whose_runs_ended_by_themselves_is_not_continued(team: Team) -> None:
    campaign = make_finished_campaign(team)
    _runs(campaign).update(ended_by_budget=False)
    with pytest.raises(CampaignTransitionError, match="no run of this campaign has used up its budget"):
        do_continue_campaign(None, campaign, MORE)


def test_a_run_that_cannot_go_on_after_all_stays_as_it_ended_and_does_not_count(team: Team) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(None, campaign, Budget(evaluations=3))
    cell = campaign.cells.select_related("run", "configuration").order_by("order")[0]
    Run.objects.filter(campaign_cell=cell).update(budget_tokens=1, spent_tokens=5)
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    left = next(one for one in results_of(campaign).cells if one.pk == cell.pk)
    assert (left.outcome, left.counts) == ("stopped early", False)
    assert "could not be continued: The budget of 1 tokens is used up" in left.why


def test_limits_have_to_leave_room_for_all_that_goes_on(team: Team) -> None:
    dear = NewConfiguration("dear", "tune", tuned("any").settings, {}, Budget(evaluations=2, device_minutes=10.0))
    suite = make_suite(["softmax_rows"])
    campaign = drive_campaign(make_campaign(team, suite=suite, configurations=[dear], seeds=[0, 1]))
    more = Budget(evaluations=4, device_minutes=20.0)
    with pytest.raises(ValidationError, match="leaves no room: with what is spent they may need 40"):
        do_continue_campaign(None, campaign, more, {"device_minutes": 39.0})
    do_continue_campaign(None, campaign, more, {"device_minutes": 40.0})
    assert campaign.cells.filter(is_continuing=True).count() == 2


def test_a_continued_run_confirms_what_it_finds_then_too(team: Team) -> None:
    configuration = tuned("confirmed", 6, confirm=True, settle=1)
    suite = make_suite(["softmax_rows"])
    campaign = drive_campaign(make_campaign(team, suite=suite, configurations=[configuration]))
    found = 1.0

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        nonlocal found
        # Each kernel is faster than all before it.
        if spec.effort == Effort.FULL and spec.candidate.language != "python":
            found *= 0.8
            return correct_result(spec, found)
        return correct_result(spec, found) if spec.effort == Effort.CONFIRM else fake_evaluate(spec, **options)

    for budget in (8, 10, 12, 14):
        do_continue_campaign(None, campaign, Budget(evaluations=budget))
        drive_campaign(campaign, evaluate)
        run = _runs(campaign).get()
        best, newest = run.best_kernel, run.kernels.exclude(author_kind="seed").order_by("number").last()
        assert best is not None and newest is not None
        assert best.evaluations.filter(effort="confirm", purpose="").exists()
        assert best.evaluations.latest("pk").created_at > run.reopened_at


def test_a_campaign_that_was_paused_in_its_settling_is_not_continued_before_its_end(
    team: Team, member: User
) -> None:
    campaign = make_settling_campaign(team)
    with pytest.raises(CampaignTransitionError, match="settling and cannot be continued"):
        do_continue_campaign(member, campaign, MORE)
    do_pause_campaign(member, campaign)
    do_resume_campaign(member, campaign)
    with pytest.raises(CampaignTransitionError, match="settling and cannot be continued"):
        do_continue_campaign(member, campaign, MORE)


def test_a_finished_campaign_is_continued_and_not_resumed(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    with pytest.raises(CampaignTransitionError, match="finished and cannot become running"):
        do_resume_campaign(member, campaign)


def test_runs_of_a_halted_configuration_do_not_go_on(team: Team) -> None:
    campaign = make_finished_campaign(team)
    campaign.configurations.filter(name="more").update(halted_why="Its model did not answer.")
    do_continue_campaign(None, campaign, Budget(evaluations=3))
    waiting = campaign.cells.filter(is_continuing=True)
    assert set(waiting.values_list("configuration__name", flat=True)) == {"less"}
    drive_campaign(campaign)
    left = [one for one in results_of(campaign).cells if not one.counts]
    assert {(one.outcome, one.why) for one in left} == {("stopped early", "Its model did not answer.")}
    assert len(left) == 2


def test_a_run_that_ends_while_the_campaign_is_continued_goes_on(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = drive_campaign(make_campaign(team), until=lambda one: _runs(one).active().exists())
    drive_campaign(campaign, until=lambda one: one.cells.filter(is_closed=True).exists())
    drive_campaign(campaign, until=lambda one: _runs(one).active().exists())
    live = _runs(campaign).active().get()

    def ends_first(*_args: Any) -> None:
        spent = live.budget_evaluations
        Run.objects.filter(pk=live.pk).update(
            state=RunState.FINISHED, ended_by_budget=True, spent_evaluations=spent
        )
        raise RunTransitionError("this run has ended")

    monkeypatch.setattr("optimizer.actions.campaign_budget.do_raise_budget", ends_first)
    do_continue_campaign(None, campaign, MORE)
    assert campaign.cells.get(run=live).is_continuing


def test_room_is_needed_for_runs_to_come_too(team: Team) -> None:
    dear = NewConfiguration("dear", "tune", tuned("any").settings, {}, Budget(evaluations=1, device_minutes=10.0))
    campaign = make_campaign(team, configurations=[dear], seeds=[0, 1], limits=Limits(device_minutes=45.0))
    drive_campaign(campaign, until=lambda one: one.cells.filter(is_closed=True).exists())
    assert campaign.cells.filter(run=None).exists()
    more = Budget(evaluations=2, device_minutes=14.0)
    with pytest.raises(ValidationError, match="leaves no room: with what is spent they may need 56"):
        do_continue_campaign(None, campaign, more)
    do_continue_campaign(None, campaign, more, {"device_minutes": 56.0})


def test_what_was_cancelled_at_the_end_of_a_run_is_asked_again(team: Team) -> None:
    asked = NewConfiguration("asked", "sampling", {"concurrency": 3}, {}, Budget(tokens=1000))
    campaign = make_campaign(team, configurations=[asked], seeds=[0], suite=make_suite(["softmax_rows"]))
    drive_campaign(campaign, until=lambda one: LlmCall.objects.filter(run__campaign_cell__campaign=one).count() > 2)
    _runs(campaign).update(spent_tokens=1000)
    drive_campaign(campaign)
    calls = LlmCall.objects.filter(run__campaign_cell__campaign=campaign)
    assert set(calls.values_list("state", flat=True)) == {CallState.CANCELLED}
    do_continue_campaign(None, campaign, Budget(tokens=5000))
    advance_campaign(campaign.pk)
    again = calls.filter(attempt=2)
    assert again.count() == 3 and set(again.values_list("state", flat=True)) == {CallState.QUEUED}


def test_the_page_leaves_limits_alone_that_it_did_not_change(client: Client, team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    client.force_login(member)
    page = reverse("campaign_continue", args=[campaign.pk])
    # Somebody has set another limit since the page was loaded.
    Campaign.objects.filter(pk=campaign.pk).update(limit_device_minutes=500)
    sent = {"evaluations": "4", "limit_usd": "", "initial-limit_usd": "", "limit_device_minutes": "",
            "initial-limit_device_minutes": "", "limit_tokens": "7", "initial-limit_tokens": ""}  # fmt: skip
    assert "initial-limit_device_minutes" in client.get(page).text
    assert client.post(page, sent).status_code == 302
    campaign.refresh_from_db()
    assert (campaign.limit_device_minutes, campaign.limit_tokens) == (500, 7)


def test_the_command_shows_no_timings_of_the_settling_before(team: Team) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(None, campaign, MORE)
    told = StringIO()
    call_command("campaign", "status", campaign.pk, stdout=told)
    assert "timings" not in told.getvalue() and "0 of 4 runs ended" in told.getvalue()


def test_what_was_settled_in_between_does_not_change_who_goes_on(team: Team) -> None:
    timed = NewConfiguration("timed", "tune", tuned("any").settings, {}, Budget(evaluations=50, device_minutes=0.2))
    suite = make_suite(["softmax_rows"])
    campaign = drive_campaign(make_campaign(team, suite=suite, configurations=[timed]))
    assert all(run.spent_evaluations < 50 for run in _runs(campaign))
    # Confirmations of the settling that take far less than those of a search would leave room for another evaluation.
    Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING).update(device_s=0.001, time_us=1.0)
    do_continue_campaign(None, campaign, Budget(device_minutes=0.4))
    assert campaign.cells.filter(is_continuing=True).count() == campaign.cells.count()


def test_the_log_says_what_was_raised_and_which_limits_hold(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(member, campaign, MORE, {"usd": Decimal(9)})
    entry = AuditEntry.objects.get(action=AuditAction.CAMPAIGN_CONTINUED)
    assert (entry.details["budget"], entry.details["limits"]) == ({"evaluations": 4.0}, {"usd": 9.0})


def test_the_page_asks_for_the_budgets_that_can_be_raised(client: Client, team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    client.force_login(member)
    page = reverse("campaign_continue", args=[campaign.pk])
    assert page in client.get(reverse("campaign_page", args=[campaign.pk])).text
    shown = client.get(page).text
    assert "Now 1, 2" in shown
    assert 'name="tokens"' not in shown
    refused = client.post(page, {"evaluations": "2"}).text
    assert "have 2 evaluations already; give more" in refused
    answer = client.post(page, {"evaluations": "4", "limit_tokens": "1000"})
    assert answer.headers["Location"] == reverse("campaign_page", args=[campaign.pk])
    campaign.refresh_from_db()
    assert (campaign.state, campaign.limit_tokens) == (CampaignState.RUNNING, 1000)


def test_the_command_continues_a_campaign_and_keeps_limits_that_are_not_given(team: Team) -> None:
    campaign = make_finished_campaign(team)
    Campaign.objects.filter(pk=campaign.pk).update(limit_tokens=7)
    with pytest.raises(CommandError, match="already"):
        call_command("campaign", "continue", campaign.pk, "--evaluations", "1")
    told = StringIO()
    call_command("campaign", "continue", campaign.pk, "--evaluations", "4", "--usd", "2", stdout=told)
    assert f"Continued campaign {campaign.pk}: 4 runs go on, 0 are under way." in told.getvalue()
    campaign.refresh_from_db()
    assert (campaign.limit_tokens, campaign.limit_usd) == (7, Decimal(2))


def _runs(campaign: Campaign) -> Any:
    return Run.objects.filter(campaign_cell__campaign=campaign)


def _timed(campaign: Campaign) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, evaluation in campaign.timings.values_list("cell__name", "evaluation"):
        found.setdefault(name, []).append(evaluation)
    return found
