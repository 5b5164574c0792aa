"""Python candidates that compile, on a real GPU: `pytest -m gpu tests/runners/test_module_build_gpu.py`.

With `-s` each test prints the seconds of every stage of a first and a second evaluation.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runners.doctor import local_targets
from runners.harness import evaluate
from runners.harness.processes import compilers
from runners.job import Baseline, Effort, JobResult, JobSpec, Language, Limits, ProblemBundle, Source, Status

pytestmark = [
    pytest.mark.usefixtures("fresh_state"),
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no NVIDIA GPU"),
]
LIMITS = Limits(call_s=10.0, total_s=120.0)

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def forward(self, x):
        return torch.relu(x) * 2 + self.shift


def get_inputs():
    return [torch.rand(4096, 4096) - 0.5]


def get_init_inputs():
    return [0.5]
"""
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void scale(const float* x, float* out, int64_t size, float shift) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < size) out[i] = fmaxf(x[i], 0.f) * 2.f + shift;
}
torch::Tensor scaled(torch::Tensor x, double shift) {
  auto out = torch::empty_like(x);
  const int64_t size = x.numel();
  scale<<<(size + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), size, shift);
  return out;
}
"""
module = load_inline("gpu_scaled", "torch::Tensor scaled(torch::Tensor x, double shift);", CUDA, functions=["scaled"])


class ModelNew(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def forward(self, x):
        return module.scaled(x, self.shift)
'''
COMPILED = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.compiled = torch.compile(lambda x: torch.relu(x) * 2 + shift, dynamic=False)

    def forward(self, x):
        return self.compiled(x)
"""
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, size, shift, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < size)
    tl.store(out + at, tl.maximum(value, 0.0) * 2 + shift, mask=at < size)


class ModelNew(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def forward(self, x):
        out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), self.shift, 1024)
        return out
"""
SYNTAX = INLINE.replace("const int64_t size = x.numel();", "const int64_t size = ;")


def outcome(language: Language, text: str, baseline: Baseline = Baseline.EAGER) -> JobResult:
    bundle = ProblemBundle("scaled", "kernelbench", "scaled.py", {"scaled.py": PROBLEM})
    started = time.monotonic()
    source, target = Source(language, text), local_targets()[1]
    result = evaluate(JobSpec("job", bundle, target, source, Effort.QUICK, baseline, limits=LIMITS))
    stages = ", ".join(f"{stage.name} {stage.seconds:.2f}" for stage in result.stages)
    cached = result.build is not None and result.build.cached
    print(
        f"\n{result.status.value} in {time.monotonic() - started:.1f} s, cached: {cached}; {stages} {result.reasons}"
    )
    return result


@pytest.mark.parametrize(
    ("language", "text"),
    [(Language.PYTHON, INLINE), (Language.PYTHON, COMPILED), (Language.TRITON, TRITON)],
    ids=["load_inline", "torch.compile", "triton"],
)
def test_second_evaluation_starts_from_what_the_first_one_compiled(language: Language, text: str) -> None:
    first, second = outcome(language, text), outcome(language, text)
    for result in (first, second):
        assert result.status is Status.CORRECT, (result.reasons, result.build)
        assert not result.failures, result.failures
    assert first.build is not None and not first.build.cached
    assert second.build is not None and second.build.cached
    assert sum(stage.seconds for stage in second.stages) < 10


def test_compiled_baseline_is_built_in_a_stage_of_its_own() -> None:
    result = outcome(Language.TRITON, TRITON, Baseline.COMPILE)
    assert result.status is Status.CORRECT and result.speedup is not None, result.reasons
    assert "build baseline" in [stage.name for stage in result.stages]


def test_syntax_error_in_cuda_shows_the_compilers_message() -> None:
    result = outcome(Language.PYTHON, SYNTAX)
    assert result.status is Status.BUILD_FAILED, result.reasons
    assert "expected an expression" in result.reasons[0]


def test_toolkit_is_found() -> None:
    assert compilers.cuda_home() is not None
