"""Test which programs count as using a single stream, and that all processes of an evaluation have the same queues."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runners.backends import Artefact
from runners.harness import evaluate
from runners.harness.evaluation import Evaluation
from runners.harness.processes.work_queues import ONE_QUEUE, environment_for
from runners.harness.timing import noise
from runners.harness.verdict import screen
from runners.harness.verdict.streams import may_use_several, stays_in_one_stream
from runners.job import Baseline, BuildReport, Effort, JobSpec, Language, ProblemBundle, Source, Status
from runners.problems import load, open_bundle

ROOT = Path(__file__).parents[2]
MODEL = """
import torch
import torch.nn as nn
from torch.nn import Conv1d
from torch.utils.cpp_extension import load_inline

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = {inner}

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""
SINGLE = {
    "a linear layer": "nn.Linear(width, width)",
    "a group norm": "nn.GroupNorm(num_groups=8, num_channels=width)",
    "a convolution": "nn.Conv2d(width, width, (3, 3), stride=2, padding=1, dilation=1, bias=False)",
    "an imported convolution": "Conv1d(width, width, 3 if width == 8 else 5)",
    "a transposed convolution": "nn.ConvTranspose2d(width, width, 3, 1, 1, 0)",
    "attention": "nn.MultiheadAttention(width, 8, batch_first=True)",
}
SEVERAL = {
    "a recurrent network": "nn.LSTM(width, width)",
    "its function": "torch._VF.gru",
    "a grouped convolution": "nn.Conv2d(width, width, 3, groups=4)",
    "groups by position": "nn.Conv2d(width, width, 3 if width == 8 else 5, 1, 1, 1, 4)",
    "groups of a functional convolution": "lambda x: F.conv2d(x, weight(x, (3, 3)), None, 1, 1, 1, 4)",
    "a convolution with arguments from elsewhere": "nn.Conv2d(*sizes)",
    "a convolution that is told its size later": "nn.LazyConv2d(width, 3, 1, 1, 1, 4)",
    "a convolution under another name": "(nn.Conv2d if width else nn.Conv1d)(width, width, 3)",
    "a convolution by its name": "nn.modules.__dict__['Conv2d']",
    "convolutions of several weights": "lambda x: torch.vmap(F.conv2d)(x, x)",
    "a stream": "torch.cuda.Stream()",
    "a stream of the pool in C++": "'at::cuda::getStreamFromPool()'",
    "a stream of a newer library in C++": "'cuda::stream mine;'",
    "a captured graph": "torch.cuda.CUDAGraph()",
    "a compiled module, which may be captured": "torch.compile(nn.Linear(width, width), mode='reduce-overhead')",
    "a default stream for each thread": "['--default-stream=per-thread']",
}


@pytest.mark.parametrize("inner", SINGLE.values(), ids=SINGLE)
def test_what_uses_one_stream_is_known(inner: str) -> None:
    assert not may_use_several(MODEL.format(inner=inner))


@pytest.mark.parametrize("inner", SEVERAL.values(), ids=SEVERAL)
def test_what_may_use_several_streams_is_known(inner: str) -> None:
    assert may_use_several(MODEL.format(inner=inner))


@pytest.mark.parametrize(
    "line",
    [
        "import torch, cupy",
        "import torch; import torchvision",
        "try:\n    from transformers import AutoModel\nexcept ImportError: pass",
        "from . import near",
        "from torch.nn import Conv2d as Layer",
        "class Layer(torch.nn.Conv2d): pass",
        "this is no Python",
    ],
)
def test_whatever_is_not_understood_may_use_several(line: str) -> None:
    assert may_use_several(f"import torch\n{line}\n")


def job(candidate: Source, bundle: ProblemBundle, parent: Source | None = None) -> JobSpec:
    return JobSpec("job", bundle, "sm_90", candidate, Effort.FULL, parent=parent)


def kernelbench(inner: str) -> ProblemBundle:
    return ProblemBundle("p", "kernelbench", "p.py", {"p.py": MODEL.format(inner=inner)})


def test_all_sides_stay_in_one_stream_or_none_is_taken_to() -> None:
    linear, lstm = (
        Source(Language.PYTHON, MODEL.format(inner=inner)) for inner in ("nn.Linear(8, 8)", "nn.LSTM(8, 8)")
    )
    bundle = kernelbench("nn.Linear(8, 8)")
    assert stays_in_one_stream(job(linear, bundle, linear), open_bundle(bundle))
    compiled = replace(job(linear, bundle), baseline=Baseline.COMPILE)
    assert not stays_in_one_stream(compiled, open_bundle(bundle))
    assert not stays_in_one_stream(job(lstm, bundle), open_bundle(bundle))
    assert not stays_in_one_stream(job(linear, bundle, lstm), open_bundle(bundle))
    recurrent = kernelbench("nn.LSTM(8, 8)")
    assert not stays_in_one_stream(job(linear, recurrent), open_bundle(recurrent))


def test_of_a_problems_files_those_are_read_that_a_side_may_import() -> None:
    bundle = kernelbench("nn.Linear(8, 8)")
    source = Source(Language.PYTHON, "import torch\nfrom helper import norm\n")
    assert not stays_in_one_stream(job(source, bundle), open_bundle(bundle))
    for text, expected in (("import torch", True), ("import torch\ngates = torch.nn.GRU(1, 1)", False)):
        beside = replace(bundle, files={**bundle.files, "helper.py": text, "seeds/lstm.py": "torch.nn.LSTM(1, 1)"})
        assert stays_in_one_stream(job(source, beside), open_bundle(beside)) is expected


def test_kernels_in_cuda_are_read_for_streams_alone() -> None:
    bundle = load("softmax_rows")
    one = Source(Language.CUDA, 'extern "C" void softmax_rows(float* x, cudaStream_t stream) { int groups = 4; }')
    assert stays_in_one_stream(job(one, bundle), open_bundle(bundle))
    several = replace(one, text=one.text.replace("int groups", "cudaStreamCreate(&other); int groups"))
    assert not stays_in_one_stream(job(several, bundle), open_bundle(bundle))


def test_texts_are_read_in_the_child_that_has_limits_and_no_torch() -> None:
    bundle = kernelbench("nn.Linear(8, 8)")
    source = Source(Language.PYTHON, MODEL.format(inner="nn.Linear(8, 8)"))
    assert screen.stays_in_one_stream(job(source, bundle))
    assert not screen.stays_in_one_stream(job(replace(source, text="x = " + "-" * 100_000 + "1"), bundle))
    # With torch for CUDA, the child has no memory left to parse anything.
    program = "import sys, runners.harness.verdict.reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_the_noise_floor_is_measured_with_a_problem_that_stays_in_one_stream() -> None:
    assert not may_use_several(open_bundle(load(noise.PROBLEM)).reference_source)


def test_its_process_is_told_so_in_its_environment() -> None:
    report = BuildReport(True, 0.0, False, "")
    usual = Artefact("module", None, "custom_kernel", report, {"TRITON_INTERPRET": "1"})
    assert environment_for(usual) == {"TRITON_INTERPRET": "1"}
    assert environment_for(replace(usual, one_stream=True)) == {"TRITON_INTERPRET": "1", **ONE_QUEUE}


ASSERTING = """
import os
import torch
assert os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1", "as many queues as usual"

def custom_kernel(x):
    return torch.softmax(x, 1)
"""


@pytest.mark.evaluates
@pytest.mark.parametrize("one_stream", [True, False])
def test_candidate_and_parent_are_loaded_with_as_many_queues_as_the_evaluation_chose(
    one_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluation, "_one_stream", one_stream)
    spec = JobSpec(
        "job", load("softmax_rows"), "cpu", Source(Language.PYTHON, ASSERTING), Effort.QUICK,
        parent=Source(Language.PYTHON, f"{ASSERTING}\n# another text\n"),
    )  # fmt: skip
    result = evaluate(spec)
    if one_stream:
        assert result.status is Status.CORRECT and result.versus_parent is not None, result.reasons
        assert result.environment["work_queues"] == 1
    else:
        assert result.status is not Status.CORRECT and "as many queues as usual" in result.reasons[0]
