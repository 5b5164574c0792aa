"""Test endings that are not the kernel's doing: a problem that the device has no memory for, failures of other
sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from django.test import Client

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.models import Evaluation, EvaluationStatus, Run, RunState, Team
from optimizer.queries.budgets import Budget
from optimizer.queries.memory import gib, too_large_text
from optimizer.search import STRATEGIES
from optimizer.search.base import Draft, Finish, History, KernelView, Step, Strategy
from runners.job import Failure, JobResult, JobSpec, Language, MemoryUse, Source, Status
from tests.factories import drive, fake_evaluate, make_run
from tests.optimizer.simulated_run import seed

pytestmark = pytest.mark.django_db
GIB = 1 << 30
MEMORY = MemoryUse(footprint_bytes=30 * GIB, needed_bytes=int(93.1 * GIB), available_bytes=int(79.6 * GIB))
SENTENCE = "This problem needs 93.1 GiB, the device has 79.6 GiB."


class Twice(Strategy):
    """Write one text twice, the second time while or after the first one is measured."""

    name: ClassVar[str] = "twice"
    title: ClassVar[str] = "Twice"
    summary: ClassVar[str] = "For tests."
    together: ClassVar[bool] = True

    def decide(self, history: History) -> list[Step]:
        first, again = (Draft(key, Source(Language.CPP, "same")) for key in ("first", "again"))
        kernel = history.kernel("first")
        if kernel is None:
            return [first, again] if self.together else [first]
        if not self.together and kernel.finished and history.kernel("again") is None:
            return [again]
        return [Finish("done")] if not history.open_kernels() else []


def too_large(spec: JobSpec, **_callbacks: Any) -> JobResult:
    return JobResult(spec.job_id, Status.TOO_LARGE, reasons=["does not fit"], memory=MEMORY)


def twice(monkeypatch: pytest.MonkeyPatch, *, together: bool, **more: Any) -> Run:
    monkeypatch.setattr(Twice, "together", together)
    monkeypatch.setitem(STRATEGIES, Twice.name, Twice())
    return make_run(strategy=Twice.name, settings={"confirm": False}, **more)


def test_a_size_is_said_in_the_unit_that_reads_best() -> None:
    assert (gib(int(93.1 * GIB)), gib(50 << 20)) == ("93.1 GiB", "50 MiB")
    assert too_large_text(MEMORY) == SENTENCE
    assert too_large_text(None) == "This problem does not fit into the device's memory."


def test_a_run_whose_seeds_do_not_fit_stops_with_both_figures_and_retries_nothing() -> None:
    run = make_run(budget=Budget(evaluations=5))
    run = drive(run, too_large)
    assert (run.state, run.stop_reason) == (RunState.FAILED, SENTENCE)
    assert run.spent_evaluations == 0
    evaluations = Evaluation.objects.filter(kernel__run=run)
    assert set(evaluations.values_list("status", flat=True)) == {EvaluationStatus.TOO_LARGE}
    assert all(one.job.attempts == 1 for one in evaluations)


def test_a_kernel_that_does_not_fit_costs_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    def written_ones_do_not_fit(spec: JobSpec, **callbacks: Any) -> JobResult:
        return too_large(spec) if spec.candidate.text == "same" else fake_evaluate(spec, **callbacks)

    run = drive(twice(monkeypatch, together=False), written_ones_do_not_fit)
    assert run.state == RunState.FINISHED
    assert run.spent_evaluations == 0


def test_its_page_shows_both_figures_and_no_fault(client: Client, team: Team, member: Any) -> None:
    run = drive(make_run(team, member), too_large)
    client.force_login(member)
    page = client.get(f"/runs/{run.pk}/kernels/0/").content.decode()
    assert "Too large" in page and SENTENCE in page
    assert 'tone-muted">Too large' in page
    assert SENTENCE.replace("'", "&#x27;") in client.get(f"/runs/{run.pk}/").content.decode()


@pytest.mark.parametrize("together", [True, False])
def test_a_copy_does_not_inherit_a_time_out_that_a_parents_build_caused(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    ended: list[str] = []

    def parent_in_the_way(spec: JobSpec, **callbacks: Any) -> JobResult:
        if spec.candidate.text == "same" and not ended:
            ended.append(spec.job_id)
            failure = Failure("parent", "build", "timed out after 300 s")
            return JobResult(spec.job_id, Status.TIMEOUT, reasons=["no answer"], failures=[failure])
        return fake_evaluate(spec, **callbacks)

    run = drive(twice(monkeypatch, together=together), parent_in_the_way)
    first, again = (run.kernels.get(key=key) for key in ("first", "again"))
    assert (first.evaluation.status, first.evaluation.failed_side) == (EvaluationStatus.TIMEOUT, "parent")
    assert again.evaluation.status == EvaluationStatus.CORRECT
    assert again.evaluation.copied_from is None
    assert run.spent_evaluations == 1, "what its parent ended is not counted"


@pytest.mark.parametrize("together", [True, False])
def test_a_copy_inherits_a_time_out_of_its_own(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    asked: list[str] = []

    def slow(spec: JobSpec, **callbacks: Any) -> JobResult:
        if spec.candidate.text != "same":
            return fake_evaluate(spec, **callbacks)
        asked.append(spec.job_id)
        failures = [Failure("candidate", "timing", "no answer within 60 s"), Failure("parent", "build", "failed")]
        return JobResult(spec.job_id, Status.TIMEOUT, reasons=["no answer"], failures=failures)

    run = drive(twice(monkeypatch, together=together), slow)
    again = run.kernels.get(key="again")
    assert again.evaluation.status == EvaluationStatus.TIMEOUT
    assert again.evaluation.copied_from == run.kernels.get(key="first").evaluation
    assert len(asked) == 1


def test_a_correct_kernel_whose_parent_failed_keeps_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def parent_missing(spec: JobSpec, **callbacks: Any) -> JobResult:
        return replace(fake_evaluate(spec, **callbacks), failures=[Failure("parent", "build", "timed out")])

    run = drive(twice(monkeypatch, together=False), parent_missing)
    first, again = (run.kernels.get(key=key) for key in ("first", "again"))
    assert (first.evaluation.status, first.evaluation.failed_side) == (EvaluationStatus.CORRECT, "")
    assert again.evaluation.copied_from == first.evaluation


def test_agents_are_not_sent_to_repair_what_the_kernel_did_not_break() -> None:
    def view(status: Status, *sides: str) -> KernelView:
        result = JobResult("j", status, failures=[Failure(side, "build", "timed out") for side in sides])
        return replace(seed("k", 1.0, 1), status=status, result=result, time_us=None)

    assert view(Status.TIMEOUT).failed and view(Status.TIMEOUT, "candidate", "parent").failed
    for spared in (view(Status.TIMEOUT, "parent"), view(Status.TOO_LARGE), view(Status.INFRA_ERROR, "harness")):
        assert not spared.failed
        assert sections.outcome(spared, Delimiters("0mark0")).startswith("Not judged")
    assert sections.outcome(view(Status.TIMEOUT), Delimiters("0mark0")).startswith("**Failed: timeout.**")
