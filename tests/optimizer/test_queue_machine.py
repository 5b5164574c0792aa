"""The queue against a model of it: whatever order claims, beats, losses, cancels and results come in."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from optimizer import queue
from optimizer.actions.job import do_cancel_jobs, do_finish_job, do_let_go
from optimizer.loop import advance
from optimizer.models import Evaluation, Job, JobState, Run, RunEvent
from optimizer.runs.dispatch import spec_of
from optimizer.runs.locking import lock_run
from optimizer.upkeep.sweep import sweep
from runners.job import JobResult, Status
from runners.job_source import Receipt
from tests.factories import QUEUE, correct_result, make_run


@dataclass
class Model:
    """Hold what a job should be like."""

    state: str = "queued"
    fence: int = 0
    attempts: int = 0
    waits: bool = False
    expired: bool = False
    cancelled: bool = False
    accepted_fence: int | None = None
    holders: list[int] = field(default_factory=list)

    @property
    def claimable(self) -> bool:
        free = (self.state == "queued" and not self.waits) or (self.state == "running" and self.expired)
        return free and self.attempts < queue.MAX_ATTEMPTS and not self.cancelled


class QueueMachine(RuleBasedStateMachine):
    """Exercise three jobs of one run."""

    @initialize()
    def start(self) -> None:
        self.run = make_run()
        advance(self.run.pk)
        mine = Job.objects.filter(evaluation__kernel__run=self.run)
        Job.objects.exclude(pk__in=mine).delete()
        self.pick = sorted(mine.values_list("pk", flat=True))
        self.jobs = {pk: Model() for pk in self.pick}
        self.lost: list[int] = []

    @rule()
    def claim(self) -> None:
        left_behind = [pk for pk in self.lost if self.jobs[pk].claimable and self.jobs[pk].state == "running"]
        expected = next((pk for pk in [*left_behind, *self.pick] if self.jobs[pk].claimable), None)
        claimed = queue.claim(QUEUE, "worker")
        assert (claimed.job_id if claimed else None) == expected
        if claimed:
            job = self.jobs[claimed.job_id]
            job.fence += 1
            job.attempts += 1
            job.state, job.expired, job.waits = "running", False, False
            job.holders.append(claimed.fence)
            assert claimed.fence == job.fence

    @rule(which=st.integers(0, 2))
    def expire(self, which: int) -> None:
        """Time passes for one job: a lease runs out, or the pause after trouble is over."""
        pk = self.pick[which]
        job = self.jobs[pk]
        if job.state == "running" or job.waits:
            Job.objects.filter(pk=pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
            job.expired = job.state == "running"
            job.waits = False
            self.lost = [*(other for other in self.lost if other != pk), pk]

    @rule(which=st.integers(0, 2), back=st.integers(0, 2))
    def beat(self, which: int, back: int) -> None:
        pk, fence, job = self._holder(which, back)
        if fence:
            answer = queue.beat(pk, fence)
            current = job.state == "running" and fence == job.fence
            assert answer is ((not job.cancelled) if current else None)
            job.expired = job.expired and not current

    @rule(which=st.integers(0, 2), back=st.integers(0, 2))
    def finish(self, which: int, back: int) -> None:
        """Hand in as a holder, perhaps one that was given up long ago; perhaps for the second time."""
        pk, fence, job = self._holder(which, back)
        if not fence:
            return
        receipt = do_finish_job(pk, fence, correct_result(spec_of(Job.objects.get(pk=pk)), 100.0 + fence))
        if job.state == "running" and fence == job.fence and not job.cancelled:
            assert receipt is Receipt.RECORDED
            job.state, job.accepted_fence = "done", fence
        elif job.accepted_fence == fence:
            assert receipt is Receipt.REPEATED
        else:
            assert receipt is Receipt.REFUSED

    @rule(which=st.integers(0, 2), back=st.integers(0, 2))
    def trouble(self, which: int, back: int) -> None:
        pk, fence, job = self._holder(which, back)
        if not fence:
            return
        receipt = do_finish_job(pk, fence, JobResult("x", Status.INFRA_ERROR, reasons=["no device"]))
        current = job.state == "running" and fence == job.fence
        if current and job.cancelled:
            job.state = "cancelled"
            assert receipt is Receipt.REFUSED
        elif current and job.attempts < queue.MAX_ATTEMPTS:
            job.state, job.waits, job.expired = "queued", True, False
            assert receipt is Receipt.RECORDED
        elif current:
            job.state = "failed_infra"
            assert receipt is Receipt.RECORDED
        else:
            assert receipt is not Receipt.RECORDED

    @precondition(lambda self: not any(job.cancelled for job in self.jobs.values()))
    @rule()
    def cancel(self) -> None:
        do_cancel_jobs(lock_run(self.run.pk))
        for job in self.jobs.values():
            if job.state in {"queued", "running"}:
                job.cancelled = True
                job.state = "cancelled" if job.state == "queued" else job.state

    @rule(which=st.integers(0, 2), back=st.integers(0, 2))
    def let_go(self, which: int, back: int) -> None:
        pk, fence, job = self._holder(which, back)
        if fence:
            do_let_go(pk, fence)
            if job.state == "running" and fence == job.fence and job.cancelled:
                job.state = "cancelled"

    @rule()
    def sweep(self) -> None:
        sweep()
        for job in self.jobs.values():
            if job.state == "running" and job.expired and job.cancelled:
                job.state = "cancelled"
            elif job.state == "running" and job.expired and job.attempts >= queue.MAX_ATTEMPTS:
                job.state = "failed_infra"

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        for pk, job in getattr(self, "jobs", {}).items():
            row = Job.objects.get(pk=pk)
            assert (row.state, row.fence, row.attempts) == (job.state, job.fence, job.attempts)

    @invariant()
    def nothing_cancelled_waits_for_ever(self) -> None:
        assert not Job.objects.filter(state=JobState.QUEUED, cancel_requested=True).exists()

    @invariant()
    def every_ended_job_has_one_outcome_and_no_other_has(self) -> None:
        for pk, job in getattr(self, "jobs", {}).items():
            evaluation = Evaluation.objects.get(job__pk=pk)
            ended = RunEvent.objects.filter(
                run=self.run, type="evaluation.finished", payload__evaluation=evaluation.pk
            ).count()
            assert ended == (1 if job.state in {"done", "failed_infra"} else 0)
            assert (evaluation.state == "done") == (job.state in {"done", "failed_infra"})
            if job.state == "done":
                assert evaluation.time_us == pytest.approx(100.0 + (job.accepted_fence or 0))

    @invariant()
    def event_numbers_have_no_gap(self) -> None:
        if hasattr(self, "run"):
            seqs = list(RunEvent.objects.filter(run=self.run).order_by("seq").values_list("seq", flat=True))
            assert seqs == list(range(1, len(seqs) + 1))
            assert Run.objects.get(pk=self.run.pk).last_seq == len(seqs)

    def _holder(self, which: int, back: int) -> tuple[int, int, Model]:
        """Return a job and one of the fences that were given out for it, the newest for `back` 0; 0 when there is
        none."""
        pk = self.pick[which]
        holders = self.jobs[pk].holders
        return pk, holders[-1 - back] if back < len(holders) else 0, self.jobs[pk]


@pytest.mark.slow
@pytest.mark.django_db
def test_the_queue_is_as_its_model_says() -> None:
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_states_that_end_are_those_the_model_ends_in() -> None:
    assert {state for state in JobState if state.is_terminal} == {"done", "failed_infra", "cancelled"}
