"""Test a KernelBench problem computed by a C function, through the whole harness."""

from __future__ import annotations

import pytest

from runners.harness import evaluate
from runners.job import Effort, JobResult, JobSpec, Language, Limits, ProblemBundle, Source, Status
from runners.problems import load
from runners.problems.filters import with_signature
from runners.state import state_dir, write_json

pytestmark = [pytest.mark.evaluates, pytest.mark.usefixtures("probed", "one_torch_for_all_problems")]

MODEL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.slope = slope

    def forward(self, x, shift):
        return nn.functional.leaky_relu(self.linear(x), self.slope) + shift


batch_size, in_features = 8, 64
out_features = 32


def get_inputs():
    return [torch.rand(batch_size, in_features), 3]


def get_init_inputs():
    return [in_features, out_features, 0.25]
"""
KERNEL = """
#include <cstdint>
extern "C" void kernel(const float* x, int64_t shift, const float* weight, const float* bias, int64_t in_features,
                       int64_t out_features, double slope, float* out) {
    for (int64_t row = 0; row < 8; ++row)
        for (int64_t o = 0; o < out_features; ++o) {
            float sum = bias[o];
            for (int64_t i = 0; i < in_features; ++i) sum += x[row * in_features + i] * weight[o * in_features + i];
            out[row * out_features + o] = (sum > 0 ? sum : (float)slope * sum) + shift;
        }
}
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> ProblemBundle:
    path = tmp_path_factory.mktemp("problem") / "1_Linear.py"
    path.write_text(MODEL)
    return with_signature(load(path), timeout_s=120)


@pytest.fixture
def probed() -> None:
    """Store ceilings of this processor, as `python -m runners probe` does: without any, it has no roofline."""
    levels = [
        {"name": "L1", "bytes": 32 << 10, "bandwidth": 1e11},
        {"name": "DRAM", "bytes": None, "bandwidth": 1e10},
    ]
    write_json(state_dir("ceilings") / "cpu.json", {"matmul_flops": {"float32": 1e11}, "levels": levels})


def outcome(problem: ProblemBundle, text: str, language: Language = Language.CPP) -> JobResult:
    limits = Limits(call_s=20.0, total_s=200.0)
    return evaluate(JobSpec("job", problem, "cpu", Source(language, text), effort=Effort.QUICK, limits=limits))


def test_a_c_function_gets_inputs_weights_numbers_and_sizes(problem: ProblemBundle) -> None:
    result = outcome(problem, KERNEL)
    assert (result.status, result.reasons) == (Status.CORRECT, [])
    (timed,) = [case for case in result.cases if case.candidate_us]
    assert timed.baseline_us and timed.roofline_us
    assert result.profile["cases"][timed.name]["flop_per_s"] > 0


def test_a_wrong_c_function_is_incorrect(problem: ProblemBundle) -> None:
    assert outcome(problem, KERNEL.replace("+ shift", "")).status is Status.INCORRECT


def test_a_kernel_that_writes_to_its_weights_is_stopped(problem: ProblemBundle) -> None:
    result = outcome(
        problem, KERNEL.replace("float sum = bias[o];", "float sum = const_cast<float*>(bias)[o] += 1;")
    )
    assert result.status is Status.CRASHED
    assert "SIGSEGV" in result.reasons[0]


def test_a_python_model_is_still_taken_and_knows_its_roofline(problem: ProblemBundle) -> None:
    result = outcome(problem, MODEL.replace("Model", "ModelNew"), Language.PYTHON)
    assert result.status is Status.CORRECT
    assert any(case.roofline_us for case in result.cases)


def test_without_a_signature_a_compiled_kernel_is_rejected(problem: ProblemBundle) -> None:
    bare = ProblemBundle(problem.name, problem.format, problem.entry, {problem.entry: MODEL})
    result = outcome(bare, KERNEL)
    assert result.status is Status.REJECTED and "not in cpp" in result.reasons[0]
