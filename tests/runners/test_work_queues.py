"""Test which programs count as using a single stream, and that all processes of an evaluation have the same queues."""

from __future__ import annotations

import pytest

from runners.backends import Artefact
from runners.harness.processes.work_queues import (
    ONE_QUEUE,
    environment_for,
    may_use_several_streams,
    stay_in_one_stream,
)
from runners.job import BuildReport, Language, ProblemBundle, Source

MODEL = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = {inner}

    def forward(self, x):
        return self.inner(x)
"""
SINGLE = {
    "a linear layer": "nn.Linear(width, width)",
    "a group norm": "nn.GroupNorm(num_groups=8, num_channels=width)",
    "a convolution": "nn.Conv2d(width, width, (3, 3), stride=2, padding=1, dilation=1, bias=False)",
    "a transposed convolution": "nn.ConvTranspose2d(width, width, 3, 1, 1, 0)",
    "attention": "nn.MultiheadAttention(width, 8, batch_first=True)",
}
SEVERAL = {
    "a recurrent network": "nn.LSTM(width, width)",
    "its function": "torch._VF.gru",
    "a grouped convolution": "nn.Conv2d(width, width, 3, groups=4)",
    "groups by position": "nn.Conv2d(width, width, 3, 1, 1, 1, 4)",
    "groups of a functional convolution": "lambda x: F.conv2d(x, weight(x, (3, 3)), None, 1, 1, 1, 4)",
    "a convolution with arguments from elsewhere": "nn.Conv2d(*sizes)",
    "a convolution without an end": "nn.Conv2d(width, (3, 3)",
    "a stream": "torch.cuda.Stream()",
    "a stream of the pool in C++": "at::cuda::getStreamFromPool()",
    "a captured graph": "torch.cuda.CUDAGraph()",
    "a compiled module, which may be captured": "torch.compile(nn.Linear(width, width), mode='reduce-overhead')",
    "a default stream for each thread": "['--default-stream=per-thread']",
}


@pytest.mark.parametrize("inner", SINGLE.values(), ids=SINGLE)
def test_what_uses_one_stream_is_known(inner: str) -> None:
    assert not may_use_several_streams(MODEL.format(inner=inner))


@pytest.mark.parametrize("inner", SEVERAL.values(), ids=SEVERAL)
def test_what_may_use_several_streams_is_known(inner: str) -> None:
    assert may_use_several_streams(MODEL.format(inner=inner))


@pytest.mark.parametrize(
    "line", ["import torch, cupy", "    from transformers import AutoModel", "from . import near"]
)
def test_a_package_whose_streams_nobody_looked_for_may_use_several(line: str) -> None:
    assert may_use_several_streams(f"import torch\n{line}\n")


def test_an_extension_that_launches_on_the_current_stream_uses_one() -> None:
    launch = "auto stream = at::cuda::getCurrentCUDAStream(); f<<<1, 1, 0, stream>>>();"
    assert not may_use_several_streams(launch)
    assert may_use_several_streams(f"{launch}\ncudaStreamCreate(&other);")


def test_more_convolutions_than_anybody_writes_are_not_looked_at() -> None:
    assert not may_use_several_streams("conv(x)\n" * 500)
    assert may_use_several_streams("conv(x)\n" * 501)


def test_one_text_decides_for_all_sides_and_the_problems_own_modules_are_read() -> None:
    kernel, helper = Source(Language.PYTHON, "from utils import norm"), "import torch\n"
    bundle = ProblemBundle(
        "p", "gpumode", "reference.py", {"reference.py": "from utils import norm", "utils.py": helper}
    )
    assert stay_in_one_stream([kernel, kernel], bundle)
    streams = Source(Language.PYTHON, "torch.cuda.Stream()")
    assert not stay_in_one_stream([kernel, streams], bundle)
    several = ProblemBundle(
        "p", "gpumode", "reference.py", {**bundle.files, "utils.py": f"{helper}gates = nn.GRU(1, 1)"}
    )
    assert not stay_in_one_stream([kernel], several)


def test_its_process_is_told_so_in_its_environment() -> None:
    report = BuildReport(True, 0.0, False, "")
    usual = Artefact("module", None, "custom_kernel", report, {"TRITON_INTERPRET": "1"})
    single = Artefact("module", None, "custom_kernel", report, {"TRITON_INTERPRET": "1"}, one_stream=True)
    assert environment_for(usual) == {"TRITON_INTERPRET": "1"}
    assert environment_for(single) == {"TRITON_INTERPRET": "1", **ONE_QUEUE}
