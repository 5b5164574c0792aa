"""Test builds ahead as rows, jobs and pages: real HIP builds where clang is, and what a run shows of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from optimizer.actions.run import do_stop_run
from optimizer.actions.target import do_sync_targets
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import AheadBatch, Job, JobState, Run, RunEvent, RunState, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.compiled_ahead import summary_of
from runners.harness import evaluate
from runners.job import AheadBuild, JobResult, JobSpec, Status
from tests.factories import drive, fake_evaluate, make_run

pytestmark = pytest.mark.django_db

QUEUES = ("build", "bench.gfx942")


@pytest.fixture
def run(team: Team, member: User) -> Run:
    """Return a run that tunes softmax on an MI300 that is not here."""
    do_sync_targets()
    target = Target.objects.get(key="gfx942")
    return make_run(team, member, target=target, budget=Budget(evaluations=3), settings={"kernel": "seed.hip_rows"})


def builds_ahead(spec: JobSpec, **more: Any) -> JobResult:
    """Answer as a harness with a compiler would: blocks of 1024 threads cannot run."""
    if not spec.ahead:
        return fake_evaluate(spec, **more)
    found = [
        AheadBuild(0.5, refused=f"{one.tunables}" if 1024 in one.tunables.values() else "") for one in spec.ahead
    ]
    return JobResult(spec.job_id, Status.CORRECT, ahead=found)


def no_compiler(spec: JobSpec, **more: Any) -> JobResult:
    if not spec.ahead:
        return fake_evaluate(spec, **more)
    Job.objects.filter(ahead_batch__isnull=False).update(attempts=3)
    return JobResult(spec.job_id, Status.INFRA_ERROR, reasons=["no compiler for gfx942"])


def tuned(run: Run) -> list[int]:
    return sorted(run.kernels.filter(author_kind="tuner").values_list("tunables__THREADS", flat=True))


def test_what_the_compiler_rules_out_costs_no_evaluation_and_the_page_says_so(run: Run, pages: Client) -> None:
    drive(run, builds_ahead, queues=QUEUES)
    assert run.state == RunState.FINISHED
    assert 1024 not in tuned(run) and run.spent_evaluations == len(tuned(run))
    page = pages.get(f"/runs/{run.pk}/parameters/").content.decode()
    assert "4 compiled ahead, 1 ruled out by the compiler" in page
    assert "THREADS=1024" in page
    (ended,) = RunEvent.objects.filter(run=run, type="ahead.finished").values_list("payload", flat=True)
    assert ended == {"compiled": 4, "refused": 1}
    feed = pages.get(f"/runs/{run.pk}/").content.decode()
    assert feed.count("4 compiled ahead, 1 ruled out by the compiler") == 1, "an open page hears of it"


def test_without_a_compiler_the_run_goes_on_as_before_and_says_so(run: Run, pages: Client) -> None:
    drive(run, no_compiler, queues=QUEUES)
    assert run.state == RunState.FINISHED and len(tuned(run)) == 3
    assert (
        "Nothing compiled ahead: no compiler for gfx942"
        in pages.get(f"/runs/{run.pk}/parameters/").content.decode()
    )
    notes = RunEvent.objects.filter(run=run, type="run.note").values_list("payload__text", flat=True)
    assert [note for note in notes if "compiled ahead" in note] == [
        "Nothing is compiled ahead: no compiler for gfx942"
    ]


def test_a_run_that_is_stopped_ends_its_builds(run: Run) -> None:
    batch = waiting_batch(run)
    do_stop_run(None, run)
    batch.refresh_from_db()
    assert batch.job is not None and batch.job.state == JobState.CANCELLED and batch.finished_at is not None


def waiting_batch(run: Run) -> AheadBatch:
    """Measure the seeds, and leave the first batch in its queue."""
    for _ in range(5):
        drive(run, rounds=1, queues=QUEUES)
        advance(run.pk)
        if found := run.ahead_batches.filter(finished_at=None).first():
            return found
    raise AssertionError("no batch was asked for")


@pytest.mark.hip
@pytest.mark.processes
def test_hip_variants_are_compiled_by_a_real_compiler(run: Run, pages: Client) -> None:
    batch = waiting_batch(run)
    source = DatabaseJobSource()
    claim = source.claim("build", "compiling")
    # Without the loop of a worker, whose heartbeat has a connection of its own and sees no row of this transaction.
    while claim is not None and claim.job_id != batch.job_id:
        claim = source.claim("build", "compiling")
    assert claim is not None
    source.finish(claim, evaluate(claim.spec))

    found = summary_of(run)
    assert found is not None and not found.error
    assert found.compiled == found.with_features == 4 and not found.ruled_out
    figures = AheadBatch.objects.get(run=run).builds[0]["figures"]
    assert figures["instructions"] > 50 and figures["vgpr"] > 0 and figures["occupancy"] >= 1
    assert "4 compiled ahead, none ruled out" in pages.get(f"/runs/{run.pk}/parameters/").content.decode()
