"""Test that a kernel whose binary the run has evaluated already is not timed again."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any, ClassVar

import pytest

from optimizer.models import Evaluation, EvaluationStatus, Hypothesis, Kernel, Measurement, Run
from optimizer.search import STRATEGIES
from optimizer.search.base import Draft, Finish, History, Hypothesise, Step, Strategy
from runners.job import BuildReport, Failure, JobResult, JobSpec, Language, Source, Status
from tests.factories import drive, fake_evaluate, make_run

pytestmark = pytest.mark.django_db


class OneByOne(Strategy):
    """Evaluate its texts one after the other, each a child of the one before."""

    name: ClassVar[str] = "one_by_one"
    title: ClassVar[str] = "One by one"
    summary: ClassVar[str] = "For tests."
    texts: ClassVar[list[str]] = []

    def decide(self, history: History) -> list[Step]:
        steps: list[Step] = []
        for number, text in enumerate(self.texts):
            parents = (f"k{number - 1}",) if number else ()
            steps.append(Hypothesise(f"h{number}", "experiment", "try", basis_key=(*parents, None)[0]))
            source = Source(Language.CPP, text)
            steps.append(Draft(f"k{number}", source, parent_keys=parents, hypothesis_key=f"h{number}"))
            kernel = history.kernel(f"k{number}")
            if kernel is None or not kernel.finished:
                return steps
        return [Finish("done")]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run of three texts of which the first two build the same."""
    monkeypatch.setattr(OneByOne, "texts", ["f(); // plain", "f(); // with another comment", "g();"])
    monkeypatch.setitem(STRATEGIES, OneByOne.name, OneByOne())
    return make_run(strategy=OneByOne.name, settings={"confirm": False})


def compiled(spec: JobSpec, **_callbacks: Any) -> JobResult:
    """Imitate a harness whose compiler drops comments, and which obeys the job's list of known artefacts."""
    digest = hashlib.sha256(re.sub("//.*", "", spec.candidate.text).encode()).hexdigest()
    build = BuildReport(True, 0.1, False, "", digest)
    if twin := spec.known_artefacts.get(digest):
        return JobResult(spec.job_id, Status.CORRECT, flags=["not_executed"], build=build, duplicate_of=twin)
    return dataclasses.replace(fake_evaluate(spec), build=build)


def evaluation(run: Run, key: str) -> Evaluation:
    return Evaluation.objects.get(first_of__run=run, first_of__key=key)


def test_a_kernel_that_builds_a_known_binary_takes_over_its_outcome(run: Run) -> None:
    drive(run, compiled)
    first, second, third = (evaluation(run, key) for key in ("k0", "k1", "k2"))
    assert second.result["duplicate_of"] == str(first.pk)
    assert second.status == EvaluationStatus.CORRECT
    assert (second.time_us, second.speedup, second.verdict) == (first.time_us, first.speedup, first.verdict)
    assert [row.evaluation_id for row in Measurement.objects.filter(evaluation__in=[first, second])] == [
        first.pk
    ] * 2
    assert f"same binary as #{first.kernel.number}" in second.result["reasons"][0]
    assert third.time_us != first.time_us and third.as_result() is not None


def test_a_change_that_the_compiler_undoes_gains_nothing(run: Run) -> None:
    drive(run, compiled)
    gains = dict(Hypothesis.objects.filter(run=run).values_list("key", "measured_gain"))
    assert gains["h1"] == 0.0
    assert gains["h2"] == pytest.approx(10.0)


def test_a_duplicate_counts_as_an_evaluation_for_it_was_asked_for(run: Run) -> None:
    drive(run, compiled)
    run.refresh_from_db()
    assert run.spent_evaluations == 3


def test_a_runner_cannot_name_an_original_that_it_was_not_told_of(run: Run) -> None:
    def lying(spec: JobSpec, **callbacks: Any) -> JobResult:
        honest = compiled(spec, **callbacks)
        return dataclasses.replace(honest, duplicate_of=honest.duplicate_of or "1", cases=[])

    drive(run, lying, rounds=3)
    statuses = set(Evaluation.objects.filter(first_of__run=run).values_list("status", flat=True))
    assert statuses <= {EvaluationStatus.INFRA_ERROR, ""}
    assert EvaluationStatus.INFRA_ERROR in statuses


def test_failures_of_the_machine_are_not_shared(run: Run) -> None:
    def first_times_out(spec: JobSpec, **callbacks: Any) -> JobResult:
        honest = compiled(spec, **callbacks)
        plain = spec.candidate.text.endswith("plain")
        return JobResult(spec.job_id, Status.TIMEOUT, build=honest.build) if plain else honest

    drive(run, first_times_out)
    assert evaluation(run, "k0").status == EvaluationStatus.TIMEOUT
    assert evaluation(run, "k1").status == EvaluationStatus.CORRECT
    assert evaluation(run, "k1").result["duplicate_of"] is None


def test_a_copy_of_a_kernel_that_exceeded_its_limit_is_not_sent_to_exceed_it_again(run: Run) -> None:
    executed: list[str] = []

    def too_slow(spec: JobSpec, **callbacks: Any) -> JobResult:
        honest = compiled(spec, **callbacks)
        if honest.duplicate_of or spec.candidate.language == Language.PYTHON:
            return honest
        executed.append(spec.job_id)
        late = Failure("candidate", "timing", "exceeded 600 s")
        return JobResult(spec.job_id, Status.TIMEOUT, build=honest.build, failures=[late])

    drive(run, too_slow)
    assert evaluation(run, "k0").status == evaluation(run, "k1").status == EvaluationStatus.TIMEOUT
    assert evaluation(run, "k1").result["duplicate_of"] is not None
    assert len(executed) == len(set(executed))


def test_a_claim_that_was_not_confirmed_is_measured_again(run: Run) -> None:
    def doubted(spec: JobSpec, **callbacks: Any) -> JobResult:
        return dataclasses.replace(compiled(spec, **callbacks), flags=["unconfirmed"])

    drive(run, doubted)
    assert evaluation(run, "k1").result["duplicate_of"] is None
    assert Kernel.objects.filter(run=run).rankable().count() == 0
