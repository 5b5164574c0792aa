"""Test what people do to a campaign while it runs, which ones are refused, and what an ended one shows."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from optimizer.actions.campaign import (
    Limits,
    NewConfiguration,
    do_change_limits,
    do_pause_campaign,
    do_resume_campaign,
    do_start_campaign,
    do_stop_campaign,
)
from optimizer.actions.run import do_pause_run
from optimizer.campaigns import settling
from optimizer.campaigns.advance import advance_campaign
from optimizer.models import (
    Campaign,
    CampaignCell,
    CampaignState,
    Evaluation,
    Notification,
    Run,
    RunState,
    Team,
    TeamRole,
    User,
)
from optimizer.models.campaign import CampaignTransitionError
from optimizer.queries.campaign_results import bands_of, costs_of, results_of
from optimizer.queries.campaign_spending import Spent, spent_by_configuration, total
from optimizer.queries.earlier_runs import earlier_runs
from optimizer.queries.suites import Subset
from optimizer.reports.benchmark_forms import kernelbench_com_report
from optimizer.reports.campaign import html_report, markdown_report
from runners.job import JobResult, JobSpec, Status
from tests.campaigns import (
    drive_campaign,
    make_campaign,
    make_finished_campaign,
    make_settling_campaign,
    make_suite,
    new_campaign,
    step,
    tuned,
)
from tests.driven_runs import make_finished_run
from tests.factories import (
    failed_result,
    fake_evaluate,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("shipped_problems")]


def test_a_run_that_paused_itself_does_not_keep_the_campaign_from_ending(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.queue.RETRY_PAUSE", dt.timedelta(0))

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        if spec.problem.name == "softmax_rows":
            return failed_result(spec, Status.INFRA_ERROR, "the harness failed")
        return fake_evaluate(spec, **options)

    campaign = drive_campaign(make_campaign(team), evaluate)
    lost = campaign.cells.filter(name="softmax_rows")
    assert campaign.state == CampaignState.FINISHED
    assert all(cell.why for cell in lost)


def test_a_run_that_a_person_pauses_takes_no_place_and_stays_theirs(team: Team, member: User) -> None:
    campaign = make_campaign(team, member)
    step(campaign, jobs=1)
    paused = Run.objects.filter(campaign_cell__campaign=campaign).active().first()
    assert paused is not None
    do_pause_run(member, paused)
    do_pause_campaign(member, campaign)
    do_resume_campaign(member, campaign)
    drive_campaign(campaign, until=lambda one: one.cells.filter(is_closed=True).count() == 3)
    for _ in range(3):
        step(campaign)
    paused.refresh_from_db()
    assert paused.state == RunState.PAUSED
    assert campaign.state == CampaignState.RUNNING
    assert campaign.cells.filter(is_closed=True).count() == 3


def test_pausing_before_a_run_has_begun_loses_no_seed(team: Team) -> None:
    campaign = make_campaign(team, suite=make_suite(["softmax_rows"]))
    advance_campaign(campaign.pk)
    do_pause_campaign(None, campaign)
    campaign.refresh_from_db()
    do_resume_campaign(None, campaign)
    drive_campaign(campaign)
    assert {cell.outcome for cell in results_of(campaign).cells} == {"settled"}


def test_stopping_in_the_search_ends_its_runs_and_settles_nothing(team: Team, member: User) -> None:
    campaign = make_campaign(team, member)
    step(campaign, jobs=1)
    do_stop_campaign(member, campaign)
    drive_campaign(campaign)
    assert campaign.state == CampaignState.STOPPED
    assert not Run.objects.active().exists()
    assert not campaign.timings.exists()
    assert campaign.cells.filter(is_skipped=True).count() == 3


def test_stopping_in_the_settling_counts_whole_problems_only(team: Team, member: User) -> None:
    campaign = make_settling_campaign(team)
    # The first problem's two timings, and one of the next.
    for _ in range(3):
        step(campaign, jobs=0)
    while campaign.timings.filter(evaluation__state="done").count() < 3:
        step(campaign, jobs=1)
    do_stop_campaign(member, campaign)
    drive_campaign(campaign)
    results = results_of(campaign)
    assert campaign.state == CampaignState.STOPPED
    counted = {cell.problem for cell in results.cells if not math.isnan(cell.score("torch_eager"))}
    assert len(counted) == 1
    assert all(cell.is_settled == (cell.problem in counted) for cell in results.cells)
    assert not Evaluation.objects.filter(state__in=["queued", "running"]).exists()


def test_a_run_that_was_stopped_early_is_shown_and_counts_for_nobody(team: Team) -> None:
    campaign = make_finished_campaign(team)
    stopped = campaign.cells.filter(configuration__name="more", name="softmax_rows")
    Run.objects.filter(campaign_cell__in=stopped).update(state=RunState.STOPPED)
    stopped.update(why="The campaign's limit of 3 evaluations is reached.")
    results = results_of(campaign)
    early = [cell for cell in results.cells if cell.outcome == "stopped early"]
    assert {cell.pk for cell in early} == set(stopped.values_list("pk", flat=True))
    assert all(cell.timed["torch_eager"].is_correct and cell in results.unresolved() for cell in early)
    more, less = results.summaries("torch_eager")
    assert (more.problems, less.problems) == (1, 2)
    assert more.success is not None and more.roofline == less.roofline is None
    board = json.loads(kernelbench_com_report(campaign))["models"][0]
    assert (board["valid_pass_count"], sorted(board["results"])) == (1, ["layernorm_residual"])
    for text in (html_report(campaign), markdown_report(campaign)):
        assert "was stopped early" in " ".join(text.split())


def test_whether_a_stopped_run_had_a_kernel_changes_no_share(team: Team) -> None:
    campaign = drive_campaign(make_campaign(team, configurations=[tuned("more", 1)], seeds=[0, 1]))
    with_kernel, without = campaign.cells.filter(configuration__name="more", name="softmax_rows")
    Run.objects.filter(campaign_cell__in=[with_kernel, without]).update(state=RunState.STOPPED)
    without.timings.all().delete()
    scores = results_of(campaign).scores("torch_eager")["more"]
    assert [bool(np.isfinite(row).any()) for row in scores] == [True, False]
    bands = bands_of(campaign, results_of(campaign), "evaluations")
    Run.objects.filter(campaign_cell__in=[with_kernel, without]).update(spent_evaluations=99)
    assert bands == bands_of(campaign, results_of(campaign), "evaluations"), "their curves are left out too"


def test_the_page_of_runs_says_that_one_was_stopped_early(client: Client, team: Team, member: User) -> None:
    campaign = make_finished_campaign(team)
    Run.objects.filter(campaign_cell=campaign.cells.earliest("order")).update(state=RunState.STOPPED)
    client.force_login(member)
    page = client.get(reverse("campaign_cells", args=[campaign.pk])).content.decode()
    assert page.count("stopped early") == 1


def test_runs_of_a_campaign_learn_nothing_from_each_other(team: Team) -> None:
    outside = make_finished_run(team)
    warm = tuned("warm", 1, warm_start=True)
    suite = make_suite(["softmax_rows"])
    campaign = drive_campaign(make_campaign(team, suite=suite, configurations=[warm], seeds=[0, 1]))
    run = Run.objects.filter(campaign_cell__campaign=campaign).last()
    assert run is not None
    assert {one.pk for one in earlier_runs(run)} <= {outside.pk}
    seeds = run.kernels.filter(key__startswith="seed.earlier")
    assert all(kernel.meta["earlier"]["run"] == outside.pk for kernel in seeds)


def test_the_starter_is_told_once_of_the_end_and_not_of_each_run(team: Team, member: User) -> None:
    drive_campaign(make_campaign(team, member, suite=make_suite(["softmax_rows"])))
    told = Notification.objects.filter(user=member)
    assert [row.kind for row in told] == ["campaign"]


def test_limits_can_be_raised_while_it_runs_and_not_after(team: Team, member: User) -> None:
    campaign = make_campaign(team, member, suite=make_suite(["softmax_rows"]))
    do_change_limits(member, campaign, Limits(usd=Decimal(3)), 4)
    campaign.refresh_from_db()
    assert (campaign.limit_usd, campaign.parallel_runs) == (Decimal(3), 4)
    with pytest.raises(ValidationError):
        do_change_limits(member, campaign, Limits(tokens=-1), 4)
    drive_campaign(campaign)
    with pytest.raises(CampaignTransitionError):
        do_change_limits(member, campaign, Limits(), 1)
    with pytest.raises(CampaignTransitionError):
        do_pause_campaign(member, campaign)


def test_a_limit_that_is_lowered_to_what_is_spent_ends_the_search_and_times_the_winners(
    team: Team, member: User
) -> None:
    campaign = make_campaign(team, member, seeds=[0, 1], parallel_runs=2)
    drive_campaign(campaign, until=lambda one: spent_in(one).evaluations > 1)
    do_change_limits(member, campaign, Limits(device_minutes=spent_in(campaign).device_s / 60), 2)
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    assert campaign.cells.filter(is_skipped=True).exists()
    stopped = campaign.cells.filter(run__state=RunState.STOPPED)
    assert stopped.exists() and campaign.timings.filter(cell__in=stopped, evaluation__state="done").exists()


def spent_in(campaign: Campaign) -> Spent:
    return total(spent_by_configuration(campaign))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"configurations": []}, "configurations"),
        ({"configurations": [tuned("a"), tuned("a")]}, "configurations"),
        ({"configurations": [NewConfiguration("a", "nothing")]}, "configurations"),
        ({"baselines": ["numpy"]}, "baselines"),
        ({"parallel_runs": 0}, "parallel_runs"),
        ({"limits": Limits(device_minutes=0)}, "limit_device_minutes"),
        ({"limits": Limits(device_minutes=math.nan)}, "limit_device_minutes"),
        ({"subset": Subset(names=("nothing*",))}, "problems"),
        ({"subset": Subset(count=0)}, "problems"),
        ({"seeds": list(range(100)), "configurations": [tuned(str(n)) for n in range(21)]}, "configurations"),
    ],
)
def test_a_campaign_that_makes_no_sense_is_refused(team: Team, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        do_start_campaign(None, new_campaign(team, **changes))
    assert list(refusal.value.message_dict) == [field]
    assert not Campaign.objects.exists()


def test_a_viewer_starts_no_campaign(team: Team) -> None:
    with pytest.raises(ValidationError):
        make_campaign(team, make_user(team, TeamRole.VIEWER))


def test_costs_to_reach_a_speedup_follow_from_the_runs(team: Team) -> None:
    campaign = make_finished_campaign(team)
    for one in costs_of(campaign, results_of(campaign), goals=[1.0]):
        cells = [cell for cell in campaign.cells.all() if cell.configuration_id == one.configuration.pk]
        reached = [next((s for s in cell.steps if s["speedup"] >= 1.0), None) for cell in cells]
        expected = sorted(math.inf if step is None else step["evaluations"] for step in reached)
        assert one.median["evaluations"] is not None
        assert one.median["evaluations"].value == expected[(len(expected) - 1) // 2]


def test_steps_of_a_run_rise_and_end_at_its_winner(team: Team) -> None:
    make_finished_campaign(team)
    for cell in CampaignCell.objects.select_related("run__best_kernel__evaluation"):
        speedups = [point["speedup"] for point in cell.steps]
        assert speedups == sorted(speedups)
        assert cell.run is not None
        winner = settling.winner_of(cell.run)
        assert winner is not None
        assert speedups[-1] == pytest.approx(winner.evaluation.speedup, abs=1e-5)
