"""Test the queue: one holder at a time, one result a job, nothing lost."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from optimizer import queue
from optimizer.actions.job import do_cancel_jobs, do_fail_job, do_finish_job, do_let_go
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationStatus, Job, JobLog, JobState, Run, Runner
from optimizer.models.runner import LOST_AFTER
from optimizer.queries.jobs import jobs_of
from optimizer.queries.run_status import status_of
from optimizer.runs.dispatch import spec_of
from optimizer.upkeep.sweep import sweep
from runners.job import JobResult, Status
from runners.job_source import Receipt, RunnerCard
from tests.factories import QUEUE, correct_result, failed_result, make_run


@pytest.fixture
def run(db: None) -> Run:
    """Return a run with its three seeds queued."""
    run = make_run()
    advance(run.pk)
    return run


def lose_lease(job_id: int) -> None:
    """Let a lease run out, as if the worker had been silent for longer."""
    Job.objects.filter(pk=job_id).update(lease_until=timezone.now() - dt.timedelta(seconds=1))


def result_for(job_id: int, time_us: float = 100.0) -> JobResult:
    return correct_result(spec_of(Job.objects.get(pk=job_id)), time_us)


def claim() -> queue.Claimed:
    claimed = queue.claim(QUEUE, "worker")
    assert claimed is not None
    return claimed


def test_jobs_are_claimed_oldest_first_and_each_once(run: Run) -> None:
    claimed = [claim().job_id for _ in range(3)]

    assert claimed == sorted(claimed)
    assert len(set(claimed)) == 3
    assert queue.claim(QUEUE, "worker") is None


def test_a_confirmation_goes_before_what_waited_longer(run: Run) -> None:
    newest = Job.objects.order_by("-pk").first()
    assert newest is not None
    Job.objects.filter(pk=newest.pk).update(priority=-10)

    assert claim().job_id == newest.pk


def test_a_waiting_run_is_told_its_place_in_the_order_of_claims(run: Run) -> None:
    Runner.objects.create(name="r", target=run.target, heartbeat_at=timezone.now(), queues=[QUEUE])
    other = make_run()
    advance(other.pk)
    assert status_of(run).text == "Next in the queue."
    assert status_of(other).text == "In the queue: 3 before it."
    first = jobs_of(run).order_by("pk")[0]
    # Exchanging places between the two runs changes who is next.
    jobs_of(other).filter(pk=jobs_of(other).order_by("pk")[2].pk).update(place=first.pk)
    jobs_of(run).update(place=10**9)
    assert status_of(other).text == "Next in the queue."
    assert status_of(run).text == "In the queue: 3 before it."
    assert jobs_of(other).filter(pk=claim().job_id, place=first.pk).exists()


def test_a_job_of_another_queue_is_left_alone(run: Run) -> None:
    assert queue.claim("bench.gfx942", "worker") is None


def test_an_expired_lease_is_claimed_again_under_a_higher_fence(run: Run) -> None:
    first = claim()
    lose_lease(first.job_id)

    second = claim()

    assert (second.job_id, second.fence) == (first.job_id, first.fence + 1)


def test_a_live_lease_is_nobody_elses(run: Run) -> None:
    first = claim()
    assert queue.beat(first.job_id, first.fence) is True
    assert first.job_id not in {claim().job_id, claim().job_id}


def test_a_result_under_an_old_fence_is_refused(run: Run) -> None:
    old = claim()
    lose_lease(old.job_id)
    new = claim()

    assert do_finish_job(old.job_id, old.fence, result_for(old.job_id, 1.0)) is Receipt.REFUSED
    assert do_finish_job(new.job_id, new.fence, result_for(new.job_id, 77.0)) is Receipt.RECORDED
    assert Evaluation.objects.get(job__pk=new.job_id).time_us == pytest.approx(77.0)


def test_a_result_that_comes_after_its_lease_counts_while_nobody_took_over(run: Run) -> None:
    late = claim()
    lose_lease(late.job_id)

    assert do_finish_job(late.job_id, late.fence, result_for(late.job_id)) is Receipt.RECORDED


def test_a_finish_whose_reply_was_lost_reads_back_as_success_and_changes_nothing(run: Run) -> None:
    held = claim()
    do_finish_job(held.job_id, held.fence, result_for(held.job_id, 50.0))
    events, spent = run.events.count(), Run.objects.get(pk=run.pk).spent_device_s

    assert do_finish_job(held.job_id, held.fence, result_for(held.job_id, 9.0)) is Receipt.REPEATED
    assert run.events.count() == events
    assert Run.objects.get(pk=run.pk).spent_device_s == spent
    assert Evaluation.objects.get(job__pk=held.job_id).time_us == pytest.approx(50.0)


def test_infrastructure_trouble_gives_the_job_back_until_its_attempts_are_used_up(run: Run) -> None:
    job_id = claim().job_id
    trouble = failed_result(spec_of(Job.objects.get(pk=job_id)), Status.INFRA_ERROR, "no device")
    for attempt in range(1, queue.MAX_ATTEMPTS + 1):
        job = Job.objects.get(pk=job_id)
        assert do_finish_job(job_id, job.fence, trouble) is Receipt.RECORDED
        job.refresh_from_db()
        if attempt < queue.MAX_ATTEMPTS:
            assert job.state == JobState.QUEUED
            lose_lease(job_id)
            assert claim().job_id == job_id

    job.refresh_from_db()
    assert job.state == JobState.FAILED_INFRA
    assert job.evaluation is not None and job.evaluation.status == EvaluationStatus.INFRA_ERROR
    assert Run.objects.get(pk=run.pk).spent_evaluations == 0


def test_a_job_given_back_waits_a_moment_before_it_is_claimed_again(run: Run) -> None:
    held = claim()
    do_finish_job(held.job_id, held.fence, JobResult("x", Status.INFRA_ERROR, reasons=["no device"]))

    assert held.job_id not in {claim().job_id, claim().job_id}
    assert queue.claim(QUEUE, "worker") is None


def test_a_kernel_failure_is_an_answer_and_is_not_tried_again(run: Run) -> None:
    held = claim()
    crashed = failed_result(spec_of(Job.objects.get(pk=held.job_id)), Status.CRASHED, "signal 11")

    assert do_finish_job(held.job_id, held.fence, crashed) is Receipt.RECORDED
    job = Job.objects.get(pk=held.job_id)
    assert job.evaluation is not None
    assert (job.state, job.attempts, job.evaluation.status) == (JobState.DONE, 1, "crashed")


def test_the_sweep_ends_a_job_whose_workers_were_lost_too_often(run: Run) -> None:
    job_id = claim().job_id
    for _ in range(queue.MAX_ATTEMPTS - 1):
        lose_lease(job_id)
        assert claim().job_id == job_id
    lose_lease(job_id)

    assert job_id not in {claim().job_id, claim().job_id}
    assert sweep()["failed_jobs"] == 1
    assert Job.objects.get(pk=job_id).state == JobState.FAILED_INFRA


def test_a_cancelled_job_is_not_claimed_and_its_holder_hears_of_it(run: Run) -> None:
    held = claim()
    do_cancel_jobs(run)

    assert queue.claim(QUEUE, "worker") is None
    assert queue.beat(held.job_id, held.fence) is False
    assert do_finish_job(held.job_id, held.fence, result_for(held.job_id)) is Receipt.REFUSED
    do_let_go(held.job_id, held.fence)
    assert Job.objects.get(pk=held.job_id).state == JobState.CANCELLED
    assert Evaluation.objects.get(job__pk=held.job_id).state == "cancelled"


def test_the_sweep_ends_a_cancelled_job_whose_holder_never_answers(run: Run) -> None:
    held = claim()
    do_cancel_jobs(run)
    lose_lease(held.job_id)

    assert sweep()["cancelled_jobs"] == 1
    assert Job.objects.get(pk=held.job_id).state == JobState.CANCELLED


def test_a_job_cannot_be_failed_while_attempts_are_left(run: Run) -> None:
    held = claim()
    assert do_fail_job(held.job_id, held.fence, "gone") is False


def test_log_chunks_are_stored_once_under_the_current_fence_and_capped(run: Run) -> None:
    held = claim()

    assert queue.add_log(held.job_id, held.fence, 1, "a\x00b" * queue.LOG_CHUNK_CHARS) is True
    assert queue.add_log(held.job_id, held.fence, 1, "again") is False
    assert queue.add_log(held.job_id, held.fence - 1, 2, "stale") is False
    assert queue.add_log(held.job_id, held.fence, queue.LOG_CHUNKS + 1, "too many") is False
    chunk = JobLog.objects.get(job_id=held.job_id)
    assert len(chunk.text) == queue.LOG_CHUNK_CHARS
    assert "\x00" not in chunk.text


def test_hostile_text_in_a_result_is_stored_without_what_the_database_refuses(run: Run) -> None:
    held = claim()
    spec = spec_of(Job.objects.get(pk=held.job_id))
    hostile = failed_result(spec, Status.CRASHED, "nul \x00 and half \ud800 a pair")

    assert do_finish_job(held.job_id, held.fence, hostile) is Receipt.RECORDED
    stored = Evaluation.objects.get(job__pk=held.job_id).result["reasons"][0]
    assert "\x00" not in stored
    assert stored.startswith("nul ")


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_race_each_gets_a_job_of_its_own() -> None:
    run = make_run()
    advance(run.pk)
    template = Job.objects.select_related("evaluation").order_by("pk").first()
    assert template is not None and template.evaluation is not None
    for _ in range(37):
        evaluation = Evaluation.objects.create(kernel=template.evaluation.kernel, target=run.target, effort="full")
        Job.objects.create(evaluation=evaluation, queue=QUEUE, spec=template.spec)

    def take(worker: int) -> list[int]:
        mine = []
        while (claimed := queue.claim(QUEUE, f"worker-{worker}")) is not None:
            mine.append(claimed.job_id)
        connection.close()
        return mine

    with ThreadPoolExecutor(8) as pool:
        taken = [job for mine in pool.map(take, range(8)) for job in mine]
    assert sorted(taken) == sorted(Job.objects.values_list("pk", flat=True))
    assert len(taken) == 40


def check_in(name: str) -> None:
    """Let a runner of the queue send its heartbeat."""
    DatabaseJobSource().check_in(RunnerCard(name, "cpu", (QUEUE,)))


def test_a_job_that_is_tied_to_a_live_runner_is_passed_over_by_others(run: Run) -> None:
    tied, free = jobs_of(run).order_by("pk")[:2]
    jobs_of(run).exclude(pk__in=[tied.pk, free.pk]).delete()
    Job.objects.filter(pk=tied.pk).update(external=queue.tied_to("host-A"))
    check_in("host-A")
    claimed = queue.claim(QUEUE, "host-B")
    assert claimed is not None and claimed.job_id == free.pk
    assert queue.claim(QUEUE, "host-B") is None
    claimed = queue.claim(QUEUE, "host-A")
    assert claimed is not None and claimed.job_id == tied.pk


@pytest.mark.parametrize(
    "changes",
    [
        {"heartbeat_at": timezone.now() - 2 * LOST_AFTER},
        {"draining": True},
        {"queues": ["bench.sm_90"]},
        {"name": "gone"},
    ],
)
def test_a_job_that_is_tied_to_a_runner_that_will_not_take_it_goes_to_another(
    run: Run, changes: dict[str, Any]
) -> None:
    tied = jobs_of(run).earliest("pk")
    Job.objects.filter(pk=tied.pk).update(external=queue.tied_to("host-A"))
    check_in("host-A")
    Runner.objects.filter(name="host-A").update(**changes)
    claimed = queue.claim(QUEUE, "host-B")
    assert claimed is not None and claimed.job_id == tied.pk
