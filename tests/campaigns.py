"""Make campaigns for tests, and drive them with a harness that answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optimizer.actions.campaign import NewCampaign, NewConfiguration, do_start_campaign
from optimizer.campaigns.advance import advance_campaign
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Campaign, CampaignState, Problem, Run, Suite, SuiteEntry, Target, Team, User
from optimizer.queries.budgets import Budget
from runners.job import JobResult
from runners.worker import work_once
from tests.driven_runs import copy_of
from tests.factories import QUEUE, fake_evaluate, make_team, store_problems_and_targets

PROBLEMS = ("softmax_rows", "layernorm_residual")


def make_suite(problems: Sequence[str] = PROBLEMS, broken: Sequence[str] = ()) -> Suite:
    """Create a suite of shipped problems, and of names that cannot be read."""
    store_problems_and_targets()
    suite = Suite.objects.create(
        slug="ours", number=Suite.objects.count() + 1, title="Ours", content_hash="x", licence="Apache License 2.0"
    )
    for position, name in enumerate(problems):
        version = Problem.objects.get(slug=name).latest()
        SuiteEntry.objects.create(suite=suite, position=position, name=name, problem_version=version)
    for position, name in enumerate(broken, len(problems)):
        SuiteEntry.objects.create(suite=suite, position=position, name=name, complaint="no class Model")
    return suite


def tuned(name: str, evaluations: int = 3, **settings: Any) -> NewConfiguration:
    """Describe a configuration that needs no model, and no time to decide."""
    settings = {"confirm": False, "warm_start": False, "sampler": "random", **settings}
    return NewConfiguration(name, "tune", settings, {}, Budget(evaluations=evaluations))


def new_campaign(team: Team | None = None, **changes: Any) -> NewCampaign:
    """Describe a campaign of two configurations on two problems with one seed: four runs."""
    given: dict[str, Any] = {
        "team": team or make_team(),
        "suite": changes.pop("suite", None) or make_suite(),
        "target": Target.objects.get(key="cpu"),
        "configurations": [tuned("more", 2), tuned("less", 1)],
        "seeds": [0],
    }
    return NewCampaign(**(given | changes))


def make_campaign(team: Team | None = None, user: User | None = None, **changes: Any) -> Campaign:
    """Start a campaign."""
    return do_start_campaign(user, new_campaign(team, **changes))


def step(campaign: Campaign, evaluate: Callable[..., JobResult] = fake_evaluate, jobs: int | None = None) -> bool:
    """Advance the campaign and its runs once and work at most `jobs` jobs. Return whether anything was worked."""
    advance_campaign(campaign.pk)
    worked = work(campaign, evaluate, jobs)
    campaign.refresh_from_db()
    return worked


def work(campaign: Campaign, evaluate: Callable[..., JobResult], jobs: int | None = None) -> bool:
    """Advance the campaign's runs once and work at most `jobs` jobs. Return whether anything was worked."""
    for run in Run.objects.filter(campaign_cell__campaign=campaign).active():
        advance(run.pk)
    source, worked = DatabaseJobSource(), 0
    while (jobs is None or worked < jobs) and work_once(source, QUEUE, "test-runner", evaluate):
        worked += 1
    return worked > 0


def drive_campaign(
    campaign: Campaign,
    evaluate: Callable[..., JobResult] = fake_evaluate,
    until: Callable[[Campaign], bool] = lambda one: one.state_choice.is_terminal,
    rounds: int = 400,
) -> Campaign:
    """Step until the condition holds, and work no job after that."""
    for _ in range(rounds):
        advance_campaign(campaign.pk)
        campaign.refresh_from_db()
        if until(campaign):
            return campaign
        work(campaign, evaluate)
    raise AssertionError(f"the campaign is still {campaign.state}")


def is_settling(campaign: Campaign) -> bool:
    """Return whether the settling has begun."""
    return campaign.state == CampaignState.SETTLING


def make_settling_campaign(team: Team) -> Campaign:
    """Create a campaign as `drive_campaign(make_campaign(team), until=is_settling)` leaves it, see `copy_of`."""
    return _copy_of_driven(team, 0)


def make_finished_campaign(team: Team) -> Campaign:
    """Create a campaign as `drive_campaign(make_campaign(team))` leaves it, see `copy_of`."""
    return _copy_of_driven(team, 1)


def _copy_of_driven(team: Team, stage: int) -> Campaign:
    """Copy the campaign that was driven once in this process, as it was when its settling began or at its end."""

    def make(team: Team, user: User | None) -> Iterator[Campaign]:
        yield drive_campaign(make_campaign(team, user), until=is_settling)
        yield drive_campaign(Campaign.objects.get(team=team))

    return Campaign.objects.get(pk=copy_of("driven campaign", make, team, None, stage))
