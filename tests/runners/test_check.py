"""Test the effort `check`: it runs the public test cases and stops, so that a writer may look as often as it likes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import runners.problems
from runners.harness import evaluate
from runners.job import Effort, JobResult, JobSpec, Language, Limits, Source, Status
from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from tests.runners import kernels

pytestmark = [pytest.mark.processes, pytest.mark.split]
TRITON_SEED = Path(runners.problems.__file__).parent / "shipped/softmax_rows/seeds/triton_rows.py"


def checked(text: str, language: Language = Language.CPP) -> JobResult:
    limits = Limits(call_s=20.0, total_s=180.0)
    return evaluate(
        JobSpec("job", load("softmax_rows"), "cpu", Source(language, text), Effort.CHECK, limits=limits)
    )


def test_a_check_runs_the_public_cases_and_times_nothing() -> None:
    result = checked(kernels.HONEST)
    assert (result.status, result.speedup, result.verdict) == (Status.CORRECT, None, None)
    assert [stage.name for stage in result.stages] == ["screen", "build", "smallest", "tests"]
    problem = open_bundle(load("softmax_rows"))
    assert [case.name for case in result.cases] == [case.name for case in problem.cases("cpu", Purpose.TEST)]
    assert problem.cases("cpu", Purpose.HIDDEN), "the problem has cases that a check must not show"


def test_a_check_names_the_first_wrong_element() -> None:
    result = checked(kernels.WRONG_IN_LAST_ROW)
    assert result.status == Status.INCORRECT and "elements wrong; worst at" in result.reasons[0]


def test_a_timing_without_hidden_cases_does_not_tell_where_a_kernel_fails_on_them() -> None:
    wrong_where_hidden = kernels.kernel("softmax(x, out, rows, cols); if (cols == 17) out[0] += 1;")
    limits = Limits(call_s=20.0, total_s=180.0)
    source = Source(Language.CPP, wrong_where_hidden)
    counts = JobSpec("job", load("softmax_rows"), "cpu", source, Effort.QUICK, limits=limits)
    whole = evaluate(counts)
    assert whole.status == Status.INCORRECT and "513x17" in whole.reasons[0], "an evaluation has all cases"
    asked = evaluate(replace(counts, hidden_cases=False))
    hidden = {case.name for case in open_bundle(load("softmax_rows")).cases("cpu", Purpose.HIDDEN)}
    assert (asked.status, asked.reasons) == (Status.CORRECT, []) and asked.speedup is not None
    assert hidden.isdisjoint(case.name for case in asked.cases)


def test_a_triton_kernel_is_checked_without_a_device_by_its_interpreter() -> None:
    pytest.importorskip("triton")
    result = checked(TRITON_SEED.read_text(), Language.TRITON)
    assert (result.status, result.reasons) == (Status.CORRECT, []) and len(result.cases) > 1


@pytest.mark.parametrize("problem", ["bf16_gemm_bias_gelu", "attention_forward"])
def test_a_bfloat16_triton_kernel_is_checked_without_a_device(problem: str) -> None:
    pytest.importorskip("triton")
    seed = next((Path(runners.problems.__file__).parent / f"shipped/{problem}/seeds").glob("triton_*.py"))
    limits = Limits(call_s=60.0, total_s=300.0)
    source = Source(Language.TRITON, seed.read_text())
    result = evaluate(JobSpec("job", load(problem), "cpu", source, Effort.CHECK, limits=limits))
    assert (result.status, result.reasons) == (Status.CORRECT, [])
