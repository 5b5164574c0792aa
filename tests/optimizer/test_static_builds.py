"""Test that kernels for a device that is not here are built before they cost a minute of it."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from optimizer.actions.run import do_stop_run
from optimizer.actions.target import do_sync_targets
from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationState, Job, Kernel, Run, Target
from optimizer.queries.budgets import Budget
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.search.base import Draft
from optimizer.templatetags.kernelsci import evaluation_badge
from runners.job import Effort, JobResult, JobSpec, Language, Source, Status
from tests.factories import drive, failed_result, fake_evaluate, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """Return a begun run on an MI300 that nobody serves, its seeds out of the way."""
    do_sync_targets()
    run = make_run(target=Target.objects.get(key="gfx942"), budget=Budget(evaluations=9))
    advance(run.pk)
    run.refresh_from_db()
    run.kernels.all().delete()
    return run


def add(
    run: Run, language: Language = Language.HIP, key: str = "k1", text: str = "__global__ void k() {}"
) -> Kernel:
    return add_kernel(lock_run(run.pk), Draft(key, Source(language, text)))


def efforts() -> list[tuple[str, str]]:
    return list(Job.objects.order_by("pk").values_list("evaluation__effort", "queue"))


def test_a_hip_kernel_is_built_on_any_machine_and_then_measured_on_the_device(run: Run) -> None:
    kernel = add(run)
    assert efforts() == [("build", "build")]

    drive(run, rounds=1, queues=["build"])
    assert efforts() == [("build", "build"), ("full", "bench.gfx942")]
    assert kernel.evaluation.state == EvaluationState.QUEUED


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("from torch.utils.cpp_extension import load_inline\nclass ModelNew: pass", "build"),
        ("import torch.utils.cpp_extension as c\nclass ModelNew: pass", "build"),
        ("class ModelNew: pass", "full"),
    ],
)
def test_a_module_is_built_first_if_it_compiles_an_extension(run: Run, text: str, first: str) -> None:
    add(run, Language.PYTHON, text=text)
    assert [effort for effort, _ in efforts()] == [first]


def test_what_does_not_compile_never_reaches_the_device_and_counts_as_an_evaluation(run: Run) -> None:
    def refuse(spec: JobSpec, **more: Any) -> JobResult:
        assert spec.effort == Effort.BUILD
        return failed_result(spec, Status.BUILD_FAILED, "error: expected ';'")

    kernel = add(run)
    drive(run, refuse, rounds=1, queues=["build"])

    kernel = Kernel.objects.get(pk=kernel.pk)
    assert kernel.evaluation.status == Status.BUILD_FAILED
    assert kernel.evaluation.result["reasons"] == ["error: expected ';'"]
    assert efforts() == [("build", "build")]
    assert Run.objects.get(pk=run.pk).spent_evaluations == 1


def test_a_build_machine_in_trouble_is_no_reason_not_to_measure(run: Run) -> None:
    def broken(spec: JobSpec, **more: Any) -> JobResult:
        Job.objects.update(attempts=3)
        return JobResult(spec.job_id, Status.INFRA_ERROR, reasons=["no clang here"])

    add(run)
    drive(run, broken, rounds=1, queues=["build"])
    assert efforts()[-1] == ("full", "bench.gfx942")


def test_python_needs_no_build_of_its_own(run: Run) -> None:
    add(run, Language.PYTHON)
    assert efforts() == [("full", "bench.gfx942")]


def test_a_kernel_for_this_processor_is_built_inside_its_measurement() -> None:
    drive(make_run(settings={"confirm": False}))
    assert set(Evaluation.objects.values_list("effort", flat=True)) == {"full"}


def test_stopping_while_kernels_are_built_ends_the_run(run: Run) -> None:
    add(run)
    add(run, key="k2")
    do_stop_run(None, run)
    advance(run.pk)

    assert Run.objects.get(pk=run.pk).state == "stopped"
    assert set(Evaluation.objects.values_list("state", flat=True)) == {"cancelled"}
    cancelled = run.events.filter(type="evaluation.cancelled").values_list("payload__evaluation", flat=True)
    assert len(cancelled) == len(set(cancelled)) == 3


def test_a_duplicate_of_a_kernel_in_its_build_shares_its_fate(run: Run) -> None:
    add(run)
    twin = add(run, key="k2")
    drive(run, rounds=1, queues=["build"])
    assert twin.evaluation.state == EvaluationState.QUEUED

    drive(run, fake_evaluate, rounds=1, queues=["bench.gfx942"])
    assert Kernel.objects.get(pk=twin.pk).evaluation.status == Status.CORRECT


@pytest.mark.parametrize(("flags", "said"), [([], "Built"), (["emulated"], "Right in emulation")])
def test_what_was_only_built_is_not_called_correct(run: Run, flags: list[str], said: str) -> None:
    kernel = add(run)
    drive(run, rounds=1, queues=["build"])
    build = kernel.evaluations.get(effort=Effort.BUILD.value)
    build.result["flags"] = flags
    assert said in evaluation_badge(build) and "Correct" not in evaluation_badge(build)
    build.effort = Effort.FULL.value
    assert "Correct" in evaluation_badge(build)


def test_the_badge_of_a_build_fetches_no_result_that_its_list_left_out(
    run: Run, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    add(run)
    drive(run, rounds=1, queues=["build"])
    build = Evaluation.objects.defer("result").get(effort=Effort.BUILD.value)
    with django_assert_num_queries(0):
        assert "Built" in evaluation_badge(build)
