"""Attack the site's end of a spool: a result or card that cannot be recorded must not hold up the others."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from optimizer import queue
from optimizer.actions import job as job_actions
from optimizer.actions.job import do_finish_job
from optimizer.actions.spool import do_sync_spool
from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Job, JobState, Run, Runner
from optimizer.runs.dispatch import dispatch_again, spec_of
from optimizer.runs.evaluation import do_store_result
from runners.dispatch.spool import Spool
from runners.dispatch.spool_source import SpoolSource
from runners.job import Baseline, JobResult, Status
from runners.job_source import RunnerCard
from runners.signing.keyring import Keyring, Role
from runners.worker import work_once
from tests.factories import QUEUE, correct_result, failed_result, fake_evaluate, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    run = make_run(dispatcher="spool")
    advance(run.pk)
    return run


def test_result_that_cannot_be_recorded_is_refused_and_the_others_count(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    exported = do_sync_spool(spool, run.target).exported
    while work_once(SpoolSource(spool, "cpu"), "spool.cpu", "there", fake_evaluate):
        pass
    poisoned = Job.objects.order_by("pk")[0].pk
    store = do_store_result

    def picky(evaluation: Evaluation, result: JobResult) -> None:
        if evaluation.job.pk == poisoned and result.status is Status.CORRECT:
            raise OverflowError("no column takes it")
        store(evaluation, result)

    monkeypatch.setattr(job_actions, "do_store_result", picky)
    synced = do_sync_spool(spool, run.target)
    assert (synced.imported, synced.refused) == (exported - 1, 1)
    assert [slip.job_id for slip, _ in spool.refused()] == [poisoned]
    assert Job.objects.get(pk=poisoned).state in (JobState.QUEUED, JobState.RUNNING)


@pytest.mark.parametrize("mtime", [1 << 60, -(1 << 40), 0])
def test_card_from_another_age_is_read_and_the_others_too(run: Run, tmp_path: Path, mtime: int) -> None:
    spool = Spool(tmp_path / "spool")
    for name in ("a", "b"):
        spool.introduce(RunnerCard(name, "cpu", ("spool.cpu",), facts={"job": 1 << 62}))
    try:
        os.utime(spool.root / "runners" / "a.json", (mtime, mtime))
    except (OSError, OverflowError):
        pytest.skip("this file system has no such time")
    do_sync_spool(spool, run.target)
    assert {"a", "b"} <= set(Runner.objects.values_list("name", flat=True))


def _fails_until_given_up(job_id: int) -> None:
    for _ in range(queue.MAX_ATTEMPTS):
        Job.objects.filter(pk=job_id).update(lease_until=None)
        claimed = queue.claim(QUEUE, "worker")
        assert claimed is not None and claimed.job_id == job_id
        trouble = failed_result(spec_of(Job.objects.get(pk=job_id)), Status.INFRA_ERROR, "it broke")
        do_finish_job(job_id, claimed.fence, trouble)


def test_source_that_breaks_down_three_times_where_others_are_judged_has_crashed() -> None:
    run = make_run()
    advance(run.pk)
    fine = queue.claim(QUEUE, "worker")
    assert fine is not None
    do_finish_job(fine.job_id, fine.fence, correct_result(spec_of(Job.objects.get(pk=fine.job_id)), 100.0))
    victim = Job.objects.filter(state=JobState.QUEUED).order_by("priority", "pk")[0].pk
    _fails_until_given_up(victim)
    evaluation = Job.objects.get(pk=victim).evaluation
    assert evaluation is not None and evaluation.result is not None
    assert evaluation.status == EvaluationStatus.CRASHED and evaluation.judges_kernel
    assert "it broke" in evaluation.result["reasons"][0]


def test_control_source_that_breaks_down_where_nothing_is_judged_is_not_blamed() -> None:
    run = make_run()
    advance(run.pk)
    victim = Job.objects.filter(state=JobState.QUEUED).order_by("priority", "pk")[0].pk
    _fails_until_given_up(victim)
    evaluation = Job.objects.get(pk=victim).evaluation
    assert evaluation is not None and evaluation.status == EvaluationStatus.INFRA_ERROR


@pytest.mark.parametrize("purpose", [EvaluationPurpose.SETTLING, EvaluationPurpose.RETIMING])
def test_control_winner_that_breaks_down_when_it_is_timed_again_is_not_blamed(purpose: EvaluationPurpose) -> None:
    run = make_run()
    advance(run.pk)
    fine = queue.claim(QUEUE, "worker")
    assert fine is not None
    do_finish_job(fine.job_id, fine.fence, correct_result(spec_of(Job.objects.get(pk=fine.job_id)), 100.0))
    kernel = run.kernels.exclude(evaluation__job=fine.job_id).order_by("pk")[0]
    again = dispatch_again(run, kernel, purpose, Baseline(run.baseline))
    _fails_until_given_up(again.job.pk)
    again.refresh_from_db()
    assert again.status == EvaluationStatus.INFRA_ERROR and not again.judges_kernel


def test_keys_are_pinned_and_forgotten_by_the_sites_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))
    other = Keyring(tmp_path / "other").public(Role.RUNNER)
    call_command("keys", "trust", "runner", other, "--name", "lab", stdout=io.StringIO())
    assert Keyring().trusts(Role.RUNNER, other) and not Keyring().trusts(Role.SITE, other)
    shown = io.StringIO()
    call_command("keys", stdout=shown)
    assert f"trusted runner {other} lab" in shown.getvalue()
    call_command("keys", "forget", "runner", "lab", stdout=io.StringIO())
    assert not Keyring().trusts(Role.RUNNER, other)
    for wrong in (("trust", "runner"), ("trust", "site", "no key"), ("forget", "runner", "nobody")):
        with pytest.raises(CommandError):
            call_command("keys", *wrong)


def test_sync_says_whose_results_are_left_alone(run: Run, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    do_sync_spool(spool, run.target)
    for place in (spool.root, *spool.root.iterdir()):
        place.chmod(0o775)
    stranger = Spool(spool.root, Keyring(tmp_path / "stranger"))
    stranger.deliver(next(iter(spool._slips("jobs"))), JobResult("evaluation-1", Status.CORRECT))
    said = io.StringIO()
    call_command("spool", "import", str(spool.root), "--target", "cpu", stdout=io.StringIO(), stderr=said)
    public = stranger.keyring.public(Role.RUNNER)
    assert f"manage.py keys trust runner {public}" in said.getvalue()
    assert not Evaluation.objects.filter(status=EvaluationStatus.CORRECT).exists()
