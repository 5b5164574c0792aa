"""Test that the baseline through torch.compile is the reference itself, in whatever style its author wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from runners.candidate.entry import Setup, entry_of
from runners.harness.timing.baseline import baseline_source
from runners.job import Baseline
from runners.problems import load, open_bundle

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        {constructor}
        self.width = width

    def forward(self, x):
        return x * self.width

WIDTH = 8

def get_inputs():
    return [torch.rand(4, WIDTH)]

def get_init_inputs():
    return [WIDTH]
"""
SHAPES = 'SHAPES = [{"WIDTH": 8}]\n'
TASK = """
name: 92_scale
display_name: "Scale"
precision: fp32
regime: memory
flops_formula: "4 * WIDTH"
bytes_formula: "32 * WIDTH"
hardware: [H100]
peak_tflops_key: fp32
tolerance: {float32: 1e-4}
forbidden: []
sota: {}
num_correct_trials: 1
num_perf_trials: 1
"""


def written(folder: Path, constructor: str, *, hard: bool) -> Path:
    """Write a KernelBench problem, or one in kernelbench.com's format."""
    text = REFERENCE.replace("{constructor}", constructor)
    place = folder / "92_scale" if hard else folder
    place.mkdir(exist_ok=True)
    if hard:
        (place / "shapes.py").write_text(SHAPES)
        (place / "problem.yaml").write_text(TASK)
    (place / ("reference.py" if hard else "92_Scale.py")).write_text(text)
    return place if hard else place / "92_Scale.py"


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("baseline", [Baseline.COMPILE, Baseline.MAX_AUTOTUNE])
@pytest.mark.parametrize("constructor", ["super().__init__()", "super(Model, self).__init__()"])
def test_a_reference_is_compiled_however_it_calls_its_base_class(
    tmp_path: Path, constructor: str, baseline: Baseline, *, hard: bool
) -> None:
    problem = open_bundle(load(written(tmp_path, constructor, hard=hard)))
    namespace: dict[str, Any] = {}
    exec(baseline_source(problem, baseline, "cpu").text, namespace)  # noqa: S102 - our own text
    with mock.patch.object(torch.nn.Module, "compile") as compiled:
        model = entry_of(namespace, Setup(problem.entry_point, [8], strict=hard))
    compiled.assert_called_once()
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 8.0))
