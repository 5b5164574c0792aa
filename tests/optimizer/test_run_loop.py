"""Test how a run advances, with a harness that answers at once."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from django.db import connection, transaction
from django.utils import timezone

from optimizer.actions.run import do_pause_run, do_raise_budget, do_resume_run, do_stop_run
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.loop.settling import _ask
from optimizer.models import (
    AuthorKind,
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    Finding,
    Hypothesis,
    Job,
    JobState,
    LlmCall,
    Run,
    RunEvent,
    Runner,
    RunState,
)
from optimizer.models.job import TURN
from optimizer.queries.budgets import Budget
from optimizer.runs.dispatch import dispatch, dispatch_again
from optimizer.search import STRATEGIES
from optimizer.search.base import Ask, Draft, Finish, History, Hypothesise, Note, Step, Strategy
from runners.job import Baseline, Effort, JobResult, JobSpec, Language, Source, Status, Verdict
from runners.job_source import RunnerCard
from tests.factories import correct_result, drive, failed_result, fake_evaluate, make_run

pytestmark = pytest.mark.django_db


class Scripted(Strategy):
    """Says the same steps at every decision, and ends once its kernels are measured."""

    name: ClassVar[str] = "scripted"
    title: ClassVar[str] = "Scripted"
    summary: ClassVar[str] = "For tests."
    steps: ClassVar[list[Step]] = []
    end: ClassVar[bool] = True

    def decide(self, history: History) -> list[Step]:
        waiting = [kernel for kernel in history.kernels if not kernel.finished]
        return [*self.steps, *([Finish("done")] if self.end and not waiting and not history.calls else [])]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Register a strategy for one test; the test sets its steps."""

    class Fresh(Scripted):
        steps: ClassVar[list[Step]] = []

    monkeypatch.setitem(STRATEGIES, "scripted", Fresh())
    return Fresh


def draft(key: str, text: str = "int x;", **more: Any) -> Draft:
    return Draft(key, Source(Language.CPP, text), **more)


def test_a_run_goes_from_seeds_to_a_confirmed_best_kernel() -> None:
    run = drive(make_run(budget=Budget(evaluations=5)))

    assert run.state == RunState.FINISHED, run.stop_reason
    assert run.spent_evaluations == 5
    assert run.kernels.filter(author_kind=AuthorKind.TUNER).count() == 5
    assert run.kernels.filter(author_kind=AuthorKind.SEED).count() == 3
    fastest = Evaluation.objects.filter(first_of__run=run).order_by("-speedup").first()
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


@pytest.mark.django_db(transaction=True)
def test_advancing_from_many_processes_at_once_does_nothing_double() -> None:
    run = make_run()

    def go(_: int) -> None:
        advance(run.pk)
        connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(go, range(12)))
    assert run.kernels.count() == 3
    assert Job.objects.count() == 3
    assert RunEvent.objects.filter(run=run, type="run.state").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_process_that_dies_before_its_commit_has_announced_nothing_and_lost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, rung = make_run(), []
    monkeypatch.setattr("runners.dispatch.celery.CeleryDispatcher.notify", lambda self, queue: rung.append(queue))

    class Killed(BaseException):
        pass

    with pytest.raises(Killed), transaction.atomic():
        advance(run.pk)
        raise Killed
    assert rung == []
    assert run.kernels.count() == 0

    advance(run.pk)
    assert run.kernels.count() == 3
    assert len(rung) == 3


@pytest.mark.django_db(transaction=True)
def test_a_process_that_dies_between_commit_and_bell_costs_only_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from optimizer.upkeep.sweep import sweep

    monkeypatch.setattr("runners.dispatch.celery.CeleryDispatcher.notify", lambda self, queue: None)
    run = make_run()
    advance(run.pk)

    heard: list[str] = []
    monkeypatch.setattr("runners.dispatch.celery.CeleryDispatcher.notify", lambda self, queue: heard.append(queue))
    sweep()
    assert heard == ["bench.cpu"]


def test_every_kind_of_step_becomes_a_row_once(scripted: type[Scripted]) -> None:
    scripted.steps = [
        Hypothesise("h1", "experiment", "Wider vectors", predicted_min=5, predicted_max=20, chosen=True),
        draft("k1", parent_keys=("seed.naive",), hypothesis_key="h1", author_kind="agent"),
        Note("n1", "Alignment matters."),
        Note("n2", "Alignment matters a lot.", supersedes="n1"),
        Ask("q1", "writer", {"base": "k1"}, "Kernel"),
    ]
    run = make_run(strategy="scripted")
    drive(run, rounds=4)

    assert list(run.kernels.filter(author_kind="agent").values_list("key", flat=True)) == ["k1"]
    assert Hypothesis.objects.get(run=run).measured_gain == pytest.approx(10.0)
    assert Finding.objects.get(key="n1").superseded_by == Finding.objects.get(key="n2")
    call = LlmCall.objects.get(run=run)
    assert (call.key, call.provider, call.context) == ("q1", "inbox", {"base": "k1"})


def test_a_kernel_the_run_has_measured_is_not_measured_again(scripted: type[Scripted]) -> None:
    scripted.steps = [draft("k1"), draft("k2"), draft("k3", "int y;")]
    run = drive(make_run(strategy="scripted"))

    twin = run.kernels.get(key="k2")
    assert twin.meta["twin_of"] == run.kernels.get(key="k1").number
    assert twin.evaluation.time_us == run.kernels.get(key="k1").evaluation.time_us
    assert not Job.objects.filter(evaluation=twin.evaluation).exists()
    assert run.spent_evaluations == 2


def test_a_kernel_is_paired_with_its_base_and_not_with_its_reference(scripted: type[Scripted]) -> None:
    scripted.steps = [
        draft("old", "int x1;"),
        draft("young", "int x2;"),
        draft("child of old", "int x3;", parent_keys=("old",)),
        draft("both", "int x4;", parent_keys=("young", "old")),
    ]
    run = drive(make_run(strategy="scripted"))
    again = dispatch(run, run.kernels.get(key="both"), Effort.FULL, first=False)
    assert Job.objects.get(evaluation=again).spec["parent"]["text"] == "int x2;"


@pytest.mark.parametrize(
    ("dispatcher", "order"),
    [
        ("celery", ["confirmation", "release", "settling", "first"]),
        ("spool", ["release", "settling", "first", "confirmation"]),
        ("kernelbot", ["release", "settling", "first", "confirmation"]),
    ],
)
def test_a_confirmation_of_a_run_waits_for_first_evaluations_where_the_device_is_elsewhere(
    scripted: type[Scripted], dispatcher: str, order: list[str]
) -> None:
    scripted.steps = [draft("k1", "int x1;"), draft("k2", "int x2;")]
    run = drive(make_run(strategy="scripted"))
    run.dispatcher, run.priority = dispatcher, 3
    first, second = run.kernels.filter(key__in=("k1", "k2"))
    names = {
        _ask(run, first.pk, None).pk: "confirmation",
        dispatch(run, first, Effort.CONFIRM, first=False).pk: "release",
        dispatch(run, second, Effort.FULL, first=False).pk: "first",
        dispatch_again(run, first, EvaluationPurpose.SETTLING, Baseline.EAGER).pk: "settling",
    }
    waiting = Job.objects.filter(evaluation__in=names).order_by("priority", TURN)
    assert [names[job.evaluation.pk] for job in waiting if job.evaluation] == order


def test_the_evaluations_budget_is_never_exceeded_however_many_drafts_there_are(scripted: type[Scripted]) -> None:
    scripted.steps = [draft(f"k{n}", f"int x{n};") for n in range(10)]
    scripted.end = False
    run = make_run(strategy="scripted", budget=Budget(evaluations=3))
    most = 0

    def watch(spec: JobSpec, **more: Any) -> JobResult:
        nonlocal most
        most = max(most, run.kernels.exclude(author_kind="seed").count())
        return fake_evaluate(spec, **more)

    run = drive(run, watch)
    assert most == 3
    assert (run.state, run.spent_evaluations) == (RunState.FINISHED, 3)
    assert "3 evaluations is used up" in run.stop_reason


def test_failed_kernels_count_and_marks_are_warned_of_once() -> None:
    def fail(spec: JobSpec, **more: Any) -> JobResult:
        seed = spec.parent is None
        return fake_evaluate(spec, **more) if seed else failed_result(spec, Status.INCORRECT, "row 7")

    run = drive(make_run(budget=Budget(evaluations=10)), fail)

    assert run.spent_evaluations == 10
    warned = RunEvent.objects.filter(run=run, type="budget.warned").values_list("payload__percent", flat=True)
    assert list(warned) == [50, 80, 100]


def test_a_budget_of_minutes_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(budget=Budget(evaluations=50, minutes=1))
    advance(run.pk)
    monkeypatch.setattr(Run, "elapsed_s", lambda self: 61.0)

    run = drive(run)
    assert run.state == RunState.FINISHED
    assert "active minutes" in run.stop_reason
    assert run.spent_evaluations == 0


def test_a_best_kernel_that_a_confirmation_refutes_gives_way_to_the_next() -> None:
    def optimistic(spec: JobSpec, **more: Any) -> JobResult:
        result = fake_evaluate(spec, **more)
        refuted = spec.effort == Effort.CONFIRM and not run.events.filter(type="best.refuted").exists()
        return correct_result(spec, 400.0) if refuted else result

    run = make_run(budget=Budget(evaluations=4))
    run = drive(run, optimistic)

    refuted = run.events.get(type="best.refuted").payload["number"]
    assert run.state == RunState.FINISHED
    assert run.best_kernel is not None and run.best_kernel.number != refuted
    assert run.best_kernel.evaluations.get(effort="confirm").verdict == Verdict.FASTER


def test_the_headline_is_the_confirmed_interval() -> None:
    def humbler(spec: JobSpec, **more: Any) -> JobResult:
        slower = spec.effort == Effort.CONFIRM
        return correct_result(spec, 160.0) if slower else fake_evaluate(spec, **more)

    run = drive(make_run(), humbler)
    assert run.best_speedup == pytest.approx(200 / 160)


def test_a_quiet_moment_on_the_machine_makes_no_winner() -> None:
    def drifting(spec: JobSpec, **more: Any) -> JobResult:
        """Take a third of the time for everything while tune.1 is measured; it is the slowest beside its baseline."""
        if spec.candidate.language == Language.PYTHON or spec.effort == Effort.CONFIRM:
            return correct_result(spec, 200.0)
        lucky = Job.objects.filter(state=JobState.RUNNING, evaluation__kernel__key="tune.1").exists()
        return correct_result(spec, 50.0, baseline_us=66.0) if lucky else correct_result(spec, 100.0)

    run = drive(make_run(settings={"confirm": False}), drifting)
    assert run.best_kernel is not None and run.best_kernel.key != "tune.1"


def test_runners_that_fail_again_and_again_pause_the_run_and_it_can_go_on() -> None:
    def broken(spec: JobSpec, **more: Any) -> JobResult:
        Job.objects.update(lease_until=None)
        return JobResult(spec.job_id, Status.INFRA_ERROR, reasons=["no device"])

    run = make_run()
    for _ in range(12):
        run = drive(run, broken, rounds=1)
        Job.objects.filter(state=JobState.QUEUED).update(lease_until=None)
    assert run.state == RunState.PAUSED
    assert "failed for reasons outside the kernel" in run.stop_reason
    assert set(Evaluation.objects.values_list("status", flat=True)) == {EvaluationStatus.INFRA_ERROR}

    do_resume_run(None, run)
    run = drive(run)
    assert run.state == RunState.FINISHED, run.stop_reason


def test_a_strategy_that_wants_nothing_and_waits_for_nothing_ends_the_run_as_failed(
    scripted: type[Scripted],
) -> None:
    scripted.end = False
    run = drive(make_run(strategy="scripted"))
    assert run.state == RunState.FAILED
    assert "stuck" in run.stop_reason


def test_a_strategy_that_raises_ends_its_run_and_says_why(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(self: Strategy, history: History) -> list[Step]:
        raise ZeroDivisionError("no kernels")

    monkeypatch.setattr(scripted, "decide", boom)
    run = drive(make_run(strategy="scripted"))
    assert run.state == RunState.FAILED
    assert "ZeroDivisionError: no kernels" in run.stop_reason


def test_stopping_cancels_what_waits_and_keeps_what_was_measured() -> None:
    run = make_run(budget=Budget(evaluations=20))
    for _ in range(6):
        run = drive(run, rounds=1)
    do_stop_run(None, run)
    advance(run.pk)
    run.refresh_from_db()

    assert run.state == RunState.STOPPED
    assert run.best_kernel is not None
    assert not Evaluation.objects.filter(state__in=[EvaluationState.QUEUED, EvaluationState.RUNNING]).exists()
    assert not Job.objects.filter(state__in=[JobState.QUEUED, JobState.RUNNING]).exists()


def test_a_paused_run_begins_nothing_and_goes_on_where_it_was() -> None:
    run = make_run(budget=Budget(evaluations=6))
    for _ in range(4):
        run = drive(run, rounds=1)
    do_pause_run(None, run)
    drive(run, rounds=3)
    before = run.kernels.count()
    advance(run.pk)
    assert run.kernels.count() == before

    do_resume_run(None, run)
    run = drive(run)
    assert (run.state, run.spent_evaluations) == (RunState.FINISHED, 6)


def test_a_raised_budget_lets_a_run_go_further() -> None:
    run = make_run(budget=Budget(evaluations=2))
    for _ in range(3):
        run = drive(run, rounds=1)
    do_raise_budget(None, run, Budget(evaluations=5))

    run = drive(run)
    assert run.spent_evaluations == 5


def test_a_run_says_once_that_nobody_is_there_to_measure() -> None:
    run = make_run()
    advance(run.pk)
    assert not run.events.filter(type="run.note").exists()

    Job.objects.update(created_at=timezone.now() - dt.timedelta(minutes=1))
    advance(run.pk)
    advance(run.pk)
    assert "Waiting for a runner for cpu." in run.events.get(type="run.note").payload["text"]


def test_a_run_with_a_live_runner_says_nothing() -> None:
    run = make_run()
    advance(run.pk)
    Job.objects.update(created_at=timezone.now() - dt.timedelta(minutes=1))
    DatabaseJobSource().check_in(RunnerCard("bench@box", "cpu", ("bench.cpu",)))
    advance(run.pk)
    assert not run.events.filter(type="run.note").exists()


def test_a_draining_runner_finishes_and_claims_no_other() -> None:
    run = make_run()
    advance(run.pk)
    source = DatabaseJobSource()
    assert source.check_in(RunnerCard("bench@box", "cpu", ("bench.cpu",))) is False
    Runner.objects.update(draining=True)

    assert source.check_in(RunnerCard("bench@box", "cpu", ("bench.cpu",))) is True
    assert source.claim("bench.cpu", "bench@box") is None
    assert source.claim("bench.cpu", "another@box") is not None
