"""Test that the runs of a campaign measure the seeds of a problem once."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest

from optimizer.actions.run import do_pause_run, do_stop_run
from optimizer.campaigns.advance import advance_campaign
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import AuthorKind, Campaign, CampaignState, Evaluation, EvaluationState, Run, Team
from optimizer.queries.run_status import status_of
from optimizer.queue import MAX_ATTEMPTS
from optimizer.runs.evidence import evidence_of
from runners.job import JobResult, JobSpec, Status
from runners.worker import work_once
from tests.campaigns import drive_campaign, make_campaign, make_suite, tuned, work
from tests.factories import QUEUE, failed_result, fake_evaluate

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("shipped_problems")]


def _begun(team: Team, **changes: Any) -> tuple[Campaign, list[Run]]:
    """Return a campaign on one problem whose runs have all begun, and the runs."""
    given: dict[str, Any] = {"suite": make_suite(["softmax_rows"]), "parallel_runs": 4, "seeds": [0, 1]}
    campaign = make_campaign(team, **(given | changes))
    advance_campaign(campaign.pk)
    runs = list(Run.objects.filter(campaign_cell__campaign=campaign).order_by("pk"))
    for run in runs:
        advance(run.pk)
    return campaign, runs


def _seeds(run: Run) -> list[Evaluation]:
    rows = Evaluation.objects.filter(first_of__run=run, kernel__author_kind=AuthorKind.SEED)
    return list(rows.order_by("kernel__number"))


def test_one_run_measures_the_seeds_and_the_others_take_them_over(team: Team) -> None:
    campaign, (first, *others) = _begun(team)
    assert len(others) == 3
    assert all(hasattr(one, "job") for one in _seeds(first))
    assert not any(hasattr(one, "job") for run in others for one in _seeds(run))
    assert status_of(others[0]).text == f"Waiting for run {first.pk}, which measures a seed for both."
    measured: Counter[str] = Counter()

    def counted(spec: JobSpec, **options: Any) -> JobResult:
        measured[spec.candidate.content_hash] += 1
        return fake_evaluate(spec, **options)

    work(campaign, counted)
    for run in others:
        advance(run.pk)
        assert [one.state for one in _seeds(run)] == [EvaluationState.DONE] * len(_seeds(first))
        assert [one.speedup for one in _seeds(run)] == [one.speedup for one in _seeds(first)]
        assert [one.copied_from for one in _seeds(run)] == _seeds(first)
        assert f"by run {first.pk}." in _seeds(run)[0].result["reasons"][-1]
    assert max(measured[one.kernel.content_hash] for one in _seeds(first)) == 1


def test_a_shared_seed_ranks_in_every_run_and_costs_the_run_that_measured_it(team: Team) -> None:
    campaign, runs = _begun(team)
    work(campaign, fake_evaluate)
    for run in runs:
        advance(run.pk)
        run.refresh_from_db()
    standings = [[(one.number, one.speedup) for one in evidence_of(run).standings] for run in runs]
    assert standings[0] and all(one == standings[0] for one in standings)
    assert runs[0].spent_device_s > 0
    assert [run.spent_device_s for run in runs[1:]] == [0.0] * 3


def test_the_campaign_comes_to_the_same_end(team: Team) -> None:
    campaign, _ = _begun(team)
    assert drive_campaign(campaign).state == CampaignState.FINISHED
    assert all(cell.is_closed for cell in campaign.cells.all())


def test_a_seed_that_the_other_run_loses_is_measured_here(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.queue.RETRY_PAUSE", dt.timedelta(0))
    _, (first, *others) = _begun(team)

    def lost(spec: JobSpec, **_: Any) -> JobResult:
        return failed_result(spec, Status.INFRA_ERROR, "the device was lost")

    for _ in range(MAX_ATTEMPTS * len(_seeds(first))):
        assert work_once(DatabaseJobSource(), QUEUE, "test-runner", lost)
    assert {one.status for one in _seeds(first)} == {"infra_error"}
    advance(others[0].pk)
    assert all(hasattr(one, "job") for one in _seeds(others[0]))
    # The third run waits for the second one now.
    advance(others[1].pk)
    assert not any(hasattr(one, "job") for one in _seeds(others[1]))


@pytest.mark.parametrize("end", [do_stop_run, do_pause_run])
def test_a_run_waits_for_no_run_that_does_not_go_on(team: Team, end: Any) -> None:
    _, (first, second, *_) = _begun(team)
    end(None, first)
    advance(second.pk)
    assert all(hasattr(one, "job") for one in _seeds(second))


def test_stopping_a_run_that_waits_ends_it_at_once(team: Team) -> None:
    _, (_, second, *_) = _begun(team)
    do_stop_run(None, second)
    advance(second.pk)
    second.refresh_from_db()
    assert second.state_choice.is_terminal
    assert {one.state for one in _seeds(second)} == {EvaluationState.CANCELLED}


def test_runs_with_and_without_profiles_do_not_share(team: Team) -> None:
    configurations = [tuned("profiled", 1, profile="always"), tuned("plain", 1, profile="never")]
    _, runs = _begun(team, configurations=configurations, seeds=[0])
    assert all(hasattr(one, "job") for run in runs for one in _seeds(run))
