"""Test campaigns that are continued with larger budgets, and settled again."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from optimizer.actions.campaign import Limits, NewConfiguration, do_pause_campaign, do_stop_campaign
from optimizer.actions.campaign_budget import do_continue_campaign
from optimizer.campaigns.advance import advance_campaign
from optimizer.models import AuditAction, AuditEntry, Campaign, CampaignState, Run, RunState, Team, User
from optimizer.models.campaign import CampaignTransitionError
from optimizer.queries.budgets import Budget
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration, total
from runners.job import Effort, JobResult, JobSpec, Status
from tests.campaigns import drive_campaign, is_settling, make_campaign, make_finished_campaign, tuned, work
from tests.factories import correct_result, failed_result, fake_evaluate

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("shipped_problems")]
# `make_finished_campaign` gives its configurations two evaluations and one.
MORE = Budget(evaluations=4)


def test_finished_runs_go_on_to_the_larger_budget_and_all_is_settled_again(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    before = dict(campaign.timings.values_list("kernel__run", "evaluation"))
    kernels = {run.pk: run.kernels.count() for run in _runs(campaign)}
    do_continue_campaign(member, campaign, MORE)
    assert campaign.cells.filter(is_continuing=True).count() == campaign.cells.count()
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    runs = _runs(campaign)
    assert {run.spent_evaluations for run in runs} == {4}
    assert all(run.kernels.count() > kernels[run.pk] for run in runs)
    assert {one.budget["evaluations"] for one in campaign.configurations.all()} == {4}
    assert all(cell.outcome == "settled" for cell in results_of(campaign).cells)
    after = dict(campaign.timings.values_list("kernel__run", "evaluation"))
    assert after.keys() == before.keys()
    assert AuditEntry.objects.filter(action=AuditAction.CAMPAIGN_CONTINUED, actor_id=member.pk).exists()


def test_only_problems_with_other_winners_are_timed_again(team: Team) -> None:
    campaign = make_finished_campaign(team)
    before = _timed(campaign)

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        # From here on one problem's kernels are faster than all before, and the other's are wrong.
        if spec.effort == Effort.CONFIRM:
            return fake_evaluate(spec, **options)
        if spec.problem.name == "softmax_rows":
            return failed_result(spec, Status.INCORRECT, "wrong")
        return correct_result(spec, 1.0)

    do_continue_campaign(None, campaign, MORE)
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


def test_no_more_runs_go_on_at_once_than_the_campaign_allows(team: Team) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(None, campaign, MORE)
    most = 0
    for _ in range(200):
        advance_campaign(campaign.pk)
        campaign.refresh_from_db()
        most = max(most, _runs(campaign).active().count())
        if is_settling(campaign):
            break
        work(campaign, fake_evaluate, 1)
    assert is_settling(campaign)
    assert most == campaign.parallel_runs == 1


def test_a_campaign_under_way_gives_its_running_and_waiting_runs_the_larger_budget_too(team: Team) -> None:
    campaign = make_campaign(team)
    drive_campaign(campaign, until=lambda one: one.cells.filter(is_closed=True).exists())
    drive_campaign(campaign, until=lambda one: _runs(one).active().exists())
    do_continue_campaign(None, campaign, MORE)
    assert campaign.cells.filter(is_continuing=True).exists()
    drive_campaign(campaign)
    assert {run.spent_evaluations for run in _runs(campaign)} == {4}
    assert campaign.state == CampaignState.FINISHED


def test_a_limit_that_is_reached_meanwhile_lets_no_run_count_that_had_less_than_the_others(team: Team) -> None:
    campaign = make_finished_campaign(team)
    spent = total(spent_by_configuration(campaign)).device_s / 60
    do_continue_campaign(None, campaign, MORE, Limits(device_minutes=1.2 * spent))
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    less = [run for run in _runs(campaign) if run.spent_evaluations < 4]
    assert less and {run.state for run in less} == {RunState.STOPPED}
    results = results_of(campaign).cells
    assert all("limit" in cell.why for cell in results if cell.state == RunState.STOPPED)
    assert not any(cell.counts for cell in results if cell.state == RunState.STOPPED)


def test_stopping_a_continued_campaign_leaves_waiting_runs_as_they_ended(team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    do_continue_campaign(member, campaign, MORE)
    advance_campaign(campaign.pk)
    do_stop_campaign(member, campaign)
    drive_campaign(campaign)
    assert campaign.state == CampaignState.STOPPED
    assert campaign.cells.filter(is_closed=True).count() == campaign.cells.count()
    assert _runs(campaign).filter(state=RunState.STOPPED).count() == 1
    with pytest.raises(CampaignTransitionError, match="stopped cannot be continued"):
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
        (Budget(evaluations=9), Limits(tokens=-1), "above zero"),
        (Budget(evaluations=9), Limits(device_minutes=1e-9), "is reached: raise it too"),
    ],
)
def test_a_budget_that_lets_nothing_go_on_is_refused(
    team: Team, budget: Budget, limits: Limits | None, said: str
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
    _runs(campaign).update(budget_evaluations=100)
    with pytest.raises(CampaignTransitionError, match="no run of this campaign has used up its budget"):
        do_continue_campaign(None, campaign, MORE)


def test_a_run_whose_other_budget_is_used_up_stays_as_it_ended(team: Team) -> None:
    both = NewConfiguration(
        "both", "tune", tuned("any").settings, {}, Budget(evaluations=2, device_minutes=10_000.0)
    )
    campaign = drive_campaign(make_campaign(team, configurations=[both], seeds=[0]))
    do_continue_campaign(None, campaign, MORE)
    used = campaign.configurations.get()
    used.budget = {"evaluations": 4, "device_minutes": 1e-9}
    used.save()
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    assert {(run.state, run.spent_evaluations) for run in _runs(campaign)} == {(RunState.FINISHED, 2)}
    assert all(cell.outcome == "settled" for cell in results_of(campaign).cells)


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
    assert f"Continued campaign {campaign.pk}: 8 runs go on." in told.getvalue()
    campaign.refresh_from_db()
    assert (campaign.limit_tokens, campaign.limit_usd) == (7, Decimal(2))


def _runs(campaign: Campaign) -> Any:
    return Run.objects.filter(campaign_cell__campaign=campaign)


def _timed(campaign: Campaign) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, evaluation in campaign.timings.values_list("cell__name", "evaluation"):
        found.setdefault(name, []).append(evaluation)
    return found
