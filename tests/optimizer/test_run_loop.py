"""How a run advances, with a harness that answers at once."""

from __future__ import annotations

import pytest

from optimizer.actions.run import Budget
from optimizer.loop import advance
from optimizer.models import AuthorKind, Evaluation, Job, JobState, Run, RunEvent, RunState
from tests.factories import drive, make_run

pytestmark = pytest.mark.django_db


def test_a_run_goes_from_seeds_to_a_confirmed_best_kernel() -> None:
    run = drive(make_run(budget=Budget(evaluations=5)))

    assert run.state == RunState.FINISHED, run.stop_reason
    assert run.spent_evaluations == 5
    assert run.kernels.filter(author_kind=AuthorKind.TUNER).count() == 5
    assert run.kernels.filter(author_kind=AuthorKind.SEED).count() == 3
    assert run.best_kernel is not None
    fastest = Evaluation.objects.filter(first_of__run=run).order_by("time_us").first()
    assert fastest is not None and run.best_kernel == fastest.kernel
    assert run.best_kernel.evaluations.filter(effort="confirm", state="done").count() == 1
    assert Job.objects.exclude(state=JobState.DONE).count() == 0


def test_event_numbers_have_no_gap() -> None:
    run = drive(make_run())

    seqs = list(RunEvent.objects.filter(run=run).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))
    assert run.last_seq == len(seqs)


def test_advancing_twice_does_nothing_double() -> None:
    run = make_run()
    advance(run.pk)
    kernels, jobs = run.kernels.count(), Job.objects.count()
    events = RunEvent.objects.filter(run=run).count()

    advance(run.pk)

    assert (run.kernels.count(), Job.objects.count()) == (kernels, jobs)
    assert RunEvent.objects.filter(run=run).count() == events
    assert Run.objects.get(pk=run.pk).state == RunState.RUNNING
