"""Let everything go wrong in one campaign: each loss is named, the rest goes on, and the sums stay exact."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.actions.campaign import NewConfiguration
from optimizer.models import Campaign, CampaignState, Run, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration
from runners.job import JobResult, JobSpec, Status
from tests.campaigns import make_campaign, make_suite, step, tuned
from tests.chaos.invariants import INVARIANTS
from tests.factories import failed_result, fake_evaluate, store_problems_and_targets

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
TOO_LARGE = "matmul_bias_gelu"
# Runs of a dead provider, and of a problem that does not fit, fail: that is no defect here.
APPLICABLE = {name: look for name, look in INVARIANTS.items() if name != "no run is stuck"}


@pytest.fixture(scope="module", autouse=True)
def problems(module_rows: None) -> None:
    """Store the shipped problems once for the module."""
    store_problems_and_targets()


def evaluate(spec: JobSpec, **options: Any) -> JobResult:
    """Find one problem too large for the device."""
    if spec.problem.name == TOO_LARGE:
        return failed_result(spec, Status.TOO_LARGE, "needs 900 GiB, has 8 GiB")
    return fake_evaluate(spec, **options)


def troubled(team: Team, member: User) -> Campaign:
    """Start two tuning configurations, and one whose provider is dead, on two sound problems of four."""
    dead = NewConfiguration("dead", "sampling", {}, {"default": {"provider": "inbox"}}, Budget(evaluations=2))
    suite = make_suite(("softmax_rows", "layernorm_residual", TOO_LARGE), broken=["level1/9_Gone"])
    compared = [tuned("more", 2), tuned("less", 1), dead]
    return make_campaign(team, member, configurations=compared, suite=suite, seeds=[0, 1])


def drive(campaign: Campaign) -> None:
    """Drive the campaign to its end while nobody answers for the dead configuration."""
    for _ in range(400):
        if campaign.state_choice.is_terminal:
            return
        step(campaign, evaluate)
        for run in Run.objects.filter(strategy="sampling").active():
            run.calls.exclude(state__in=["failed", "answered"]).update(state="failed", error="no route to host")
    pytest.fail(f"the campaign is still {campaign.state}")


def wrong(campaign: Campaign) -> list[str]:
    """Return what the rows contradict: events, results, budgets of runs, and the campaign's own sums."""
    found = [f"{name}: {one}" for name, look in APPLICABLE.items() for one in look()]
    spent = sum(one.evaluations for one in spent_by_configuration(campaign).values())
    of_runs = sum(Run.objects.filter(campaign_cell__campaign=campaign).values_list("spent_evaluations", flat=True))
    return found + ([] if spent == of_runs else [f"{spent} evaluations are told, {of_runs} were spent"])


def test_each_loss_is_named_the_rest_is_settled_and_budgets_are_exact(team: Team, member: User) -> None:
    campaign = troubled(team, member)
    drive(campaign)
    assert campaign.state == CampaignState.FINISHED
    assert campaign.unusable == [{"name": "level1/9_Gone", "complaint": "no class Model"}]
    halted = campaign.configurations.get(name="dead")
    assert "no route to host" in halted.halted_why
    large = campaign.cells.filter(name=TOO_LARGE)
    assert large.count() == 6 and all(cell.why or (cell.run and cell.run.stop_reason) for cell in large)
    assert large.filter(is_skipped=True).count() > large.exclude(run=None).count(), (
        "it is not tried again and again"
    )
    results = results_of(campaign)
    settled = {(cell.problem, cell.configuration) for cell in results.cells if cell.is_settled and cell.timed}
    sound = campaign.configurations.exclude(pk=halted.pk)
    assert len(settled) == 2 * sound.count() and not any(one[1] == halted.pk for one in settled)
    assert all(run.spent_evaluations <= (run.budget_evaluations or 0) for run in Run.objects.all())
    assert wrong(campaign) == []
