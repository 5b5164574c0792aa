"""Test jobs of a run out to a spool directory and results in again."""

from __future__ import annotations

import datetime as dt
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from optimizer import queue
from optimizer.actions.run import do_stop_run
from optimizer.actions.runner import do_drain_runner
from optimizer.actions.spool import do_reclaim, do_sync_spool
from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationStatus, Job, JobState, Run, Runner, Target
from optimizer.queries.runners import live_runners
from optimizer.upkeep.sweep import sweep
from runners import wire
from runners.dispatch.spool import Slip, Spool, SpoolError
from runners.dispatch.spool_source import SpoolSource
from runners.job import JobResult, Status
from runners.job_source import RunnerCard
from runners.worker import work_once
from tests.factories import fake_evaluate, make_run, make_user
from tests.signed import put

pytestmark = pytest.mark.django_db


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def run() -> Run:
    """Return a begun run whose jobs go by spool."""
    run = make_run(dispatcher="spool")
    advance(run.pk)
    return run


@pytest.fixture
def cpu(run: Run) -> Target:
    return run.target


def work(spool: Spool) -> int:
    done = 0
    while work_once(SpoolSource(spool, "cpu"), "spool.cpu", "there", fake_evaluate):
        done += 1
    return done


def slip_of(job: Job) -> Slip:
    job.refresh_from_db()
    return Slip(job.pk, job.fence)


def test_a_round_trip_stores_every_result(run: Run, spool: Spool, cpu: Target) -> None:
    out = do_sync_spool(spool, cpu)
    assert out.exported == Job.objects.count() > 0
    assert work(spool) == out.exported
    back = do_sync_spool(spool, cpu)
    assert (back.imported, back.repeated, back.refused) == (out.exported, 0, 0)
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.DONE}
    assert set(Evaluation.objects.values_list("status", flat=True)) == {EvaluationStatus.CORRECT}


def test_exported_jobs_are_taken_in_the_order_of_the_queue_and_not_of_their_numbers(
    run: Run, spool: Spool, cpu: Target
) -> None:
    advance(make_run(dispatcher="spool").pk)
    first, *others = Job.objects.order_by("pk").values_list("pk", flat=True)
    assert len(others) > 1
    # The run's jobs have exchanged their places, and the second one confirms a leader.
    for pk, place in zip(others, reversed(others), strict=True):
        Job.objects.filter(pk=pk).update(place=place)
    Job.objects.filter(pk=others[0]).update(priority=-10)
    do_sync_spool(spool, cpu)
    taken = []
    while found := spool.take("cpu"):
        taken.append(found[0].job_id)
    assert taken == [others[0], first, *reversed(others[1:])]


def test_what_says_the_order_of_exported_jobs_is_gone_with_them(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    assert list((spool.root / "jobs").glob("*.turn"))
    work(spool)
    do_sync_spool(spool, cpu)
    left = {slip.split(".")[0] for slip in (path.name for path in (spool.root / "jobs").glob("*.turn"))}
    assert left == {str(pk) for pk in Job.objects.filter(state=JobState.RUNNING).values_list("pk", flat=True)}


def test_jobs_of_a_lost_directory_are_queued_again_and_their_late_results_refused(
    run: Run, spool: Spool, cpu: Target
) -> None:
    do_sync_spool(spool, cpu)
    (kept, *lost) = sorted((spool.root / "jobs").glob("*.json"))
    assert lost
    elsewhere = Spool(shutil.copytree(spool.root, spool.root.with_name("copy")))
    for path in lost:
        path.unlink()
    told = io.StringIO()
    call_command("spool", "reclaim", str(spool.root), "--target", cpu.key, stdout=told)
    where = f"jobs of cpu are out in {spool.root}"
    assert told.getvalue().splitlines() == [f"{len(lost)} lost jobs queued again", where]
    waiting = Job.objects.filter(state=JobState.QUEUED)
    assert waiting.count() == len(lost) and set(waiting.values_list("attempts", flat=True)) == {0}
    assert not waiting.filter(pk=kept.name.split(".")[0]).exists()
    # The copy comes back after the jobs went out a second time.
    waiting.update(lease_until=None)
    assert do_sync_spool(spool, cpu).exported == len(lost)
    work(elsewhere)
    for path in (elsewhere.root / "results").iterdir():
        shutil.copy(path, spool.root / "results")
    again = do_sync_spool(spool, cpu)
    assert (again.imported, again.refused) == (1, len(lost))
    assert Job.objects.filter(state=JobState.RUNNING).count() == len(lost)


def reclaim(directory: Path | str, *options: str) -> list[str]:
    told = io.StringIO()
    call_command("spool", "reclaim", str(directory), "--target", "cpu", *options, stdout=told)
    return told.getvalue().splitlines()


def test_a_directory_that_may_be_an_unmounted_share_is_reclaimed_on_demand_alone(
    run: Run, spool: Spool, cpu: Target
) -> None:
    jobs = do_sync_spool(spool, cpu).exported
    shutil.rmtree(spool.root)
    with pytest.raises(CommandError, match="--gone"):
        reclaim(spool.root)
    assert not Job.objects.filter(state=JobState.QUEUED).exists()
    assert reclaim(spool.root, "--gone") == [f"{jobs} lost jobs queued again"]


def test_a_directory_is_the_same_however_its_path_is_written(
    run: Run, spool: Spool, cpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(spool.root.parent)
    jobs = do_sync_spool(Spool(Path(spool.root.name)), cpu).exported
    other = Spool(spool.root.with_name(f"{'long' * 40} 1"))
    assert do_reclaim(other, cpu) == 0
    shutil.rmtree(spool.root / "jobs")
    assert do_reclaim(spool, cpu) == jobs


def test_directories_with_long_paths_that_begin_alike_are_told_apart(run: Run, tmp_path: Path, cpu: Target) -> None:
    one, other = (Spool(tmp_path / ("long" * 40) / name) for name in ("one", "other"))
    do_sync_spool(one, cpu)
    shutil.rmtree(one.root / "jobs")
    assert do_reclaim(other, cpu) == 0
    assert do_reclaim(one, cpu) == Job.objects.filter(state=JobState.QUEUED).count() > 0


def test_jobs_that_an_export_is_writing_are_not_reclaimed(run: Run, spool: Spool, cpu: Target) -> None:
    taken = queue.claim("spool.cpu", f"spool:{spool.root}")
    assert taken is not None
    assert do_reclaim(spool, cpu) == 0
    assert queue.held(taken.job_id, taken.fence).exists()


def test_a_run_that_is_stopped_while_its_jobs_are_reclaimed_ends(
    run: Run, spool: Spool, cpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_sync_spool(spool, cpu)
    shutil.rmtree(spool.root / "jobs")
    to_stop = [run]

    def stopping(*_: object) -> bool:
        while to_stop:
            do_stop_run(None, to_stop.pop())
        return False

    monkeypatch.setattr(Spool, "holds", stopping)
    assert do_reclaim(spool, cpu) == 0
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.CANCELLED}
    advance(run.pk)
    assert Run.objects.get(pk=run.pk).state_choice.is_terminal


def test_the_same_result_twice_counts_once(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    work(spool)
    kept = {path.name: path.read_bytes() for path in (spool.root / "results").iterdir()}
    do_sync_spool(spool, cpu)
    spent = Run.objects.get(pk=run.pk).spent_device_s
    for name, text in kept.items():
        (spool.root / "results" / name).write_bytes(text)
    again = do_sync_spool(spool, cpu)
    assert (again.imported, again.repeated) == (0, len(kept))
    assert Run.objects.get(pk=run.pk).spent_device_s == spent


def test_a_result_for_a_job_that_nobody_knows_is_refused_and_the_rest_taken_in(
    run: Run, spool: Spool, cpu: Target
) -> None:
    do_sync_spool(spool, cpu)
    work(spool)
    put(spool, "results", "999999.1.json", wire.dumps(JobResult("evaluation-1", Status.CORRECT)))
    synced = do_sync_spool(spool, cpu)
    assert synced.refused == 1 and synced.imported > 0
    assert [slip.job_id for slip, _ in spool.refused()] == [999999]


def test_a_spool_has_no_say_about_jobs_that_go_other_ways(spool: Spool) -> None:
    other = make_run()
    advance(other.pk)
    claimed = queue.claim("bench.cpu", "worker")
    assert claimed is not None
    job = Job.objects.get(pk=claimed.job_id)
    forged = JobResult(f"evaluation-{job.evaluation_id}", Status.CORRECT)
    put(spool, "results", Slip(job.pk, job.fence).name, wire.dumps(forged))
    assert do_sync_spool(spool, other.target).refused == 1
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_a_result_under_an_old_fence_is_refused(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    work(spool)
    Job.objects.update(fence=5)
    assert do_sync_spool(spool, cpu).imported == 0
    assert not Evaluation.objects.exclude(status="").exists()


def test_a_result_that_is_no_result_puts_its_job_back_into_the_queue(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    job = Job.objects.order_by("pk")[0]
    slip = slip_of(job)
    spool.take()
    (spool.root / "results" / slip.name).symlink_to("/etc/hostname")
    do_sync_spool(spool, cpu, at_once=0)
    job.refresh_from_db()
    assert job.state == JobState.QUEUED and job.error.startswith("spool:")


def test_a_disk_that_is_full_uses_up_no_attempt(
    run: Run, spool: Spool, cpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any) -> None:
        raise SpoolError("jobs: No space left on device")

    monkeypatch.setattr(spool, "offer", full)
    for _ in range(5):
        Job.objects.update(lease_until=None)
        with pytest.raises(SpoolError):
            do_sync_spool(spool, cpu)
    assert set(Job.objects.values_list("state", "attempts")) == {(JobState.QUEUED, 0)}

    monkeypatch.undo()
    Job.objects.update(lease_until=None)
    assert do_sync_spool(spool, cpu).exported == Job.objects.count()


def test_cancelled_jobs_are_withdrawn(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    do_stop_run(None, run)
    assert do_sync_spool(spool, cpu).withdrawn == Job.objects.count()
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.CANCELLED}
    assert spool.take() is None and not list((spool.root / "cancel").iterdir())


def test_jobs_that_wait_in_the_spool_do_not_expire(run: Run, spool: Spool, cpu: Target) -> None:
    do_sync_spool(spool, cpu)
    Job.objects.update(lease_until=timezone.now())
    do_sync_spool(spool, cpu)
    sweep()
    far = timezone.now() + dt.timedelta(days=6)
    assert set(Job.objects.values_list("state", "attempts")) == {(JobState.RUNNING, 1)}
    assert not Job.objects.exclude(lease_until__gt=far).exists()


def test_workers_of_the_spool_are_known_as_runners(run: Run, spool: Spool, cpu: Target) -> None:
    spool.introduce(RunnerCard("spool@far-1", "cpu", ("spool.cpu",), "a CPU", "bubblewrap", {"driver": ""}))
    do_sync_spool(spool, cpu)
    assert Runner.objects.get(name="spool@far-1").target == cpu
    assert [runner.name for runner in live_runners("cpu", "spool")] == ["spool@far-1"]


def test_a_drained_worker_of_the_spool_is_told_so(run: Run, spool: Spool, cpu: Target) -> None:
    card = RunnerCard("far", "cpu", ("spool.cpu",))
    spool.introduce(card)
    do_sync_spool(spool, cpu)
    do_drain_runner(make_user(), Runner.objects.get(name="far"), "")
    do_sync_spool(spool, cpu)
    assert spool.introduce(card)
    assert not live_runners("cpu", "spool").exists()


def test_the_command_says_what_it_did_and_what_went_wrong(run: Run, spool: Spool, tmp_path: Path) -> None:
    said = io.StringIO()
    call_command("spool", "export", str(spool.root), "--target", "cpu", stdout=said)
    jobs = Job.objects.count()
    assert said.getvalue().startswith(f"{jobs} jobs out, 0 results in")
    assert work(spool) == jobs
    call_command("spool", "import", str(spool.root), "--target", "cpu", stdout=said)
    assert f"0 jobs out, {jobs} results in" in said.getvalue()
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file"):
        call_command("spool", "sync", str(tmp_path / "file" / "x"), "--target", "cpu")
    with pytest.raises(CommandError, match="no target"):
        call_command("spool", "sync", str(spool.root), "--target", "abacus")


def test_an_exchange_killed_between_claim_and_file_delays_the_job_by_a_lease_not_by_a_week(
    run: Run, spool: Spool, cpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Spool, "offer", die)
        do_sync_spool(spool, cpu)
    lost = Job.objects.get(state=JobState.RUNNING)
    assert lost.lease_until is not None
    assert lost.lease_until - timezone.now() <= queue.LEASE

    Job.objects.filter(pk=lost.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    do_sync_spool(spool, cpu)
    lost.refresh_from_db()
    assert (lost.fence, spool.holds(slip_of(lost))) == (2, True)
    assert lost.lease_until is not None and lost.lease_until - timezone.now() > dt.timedelta(days=6)
