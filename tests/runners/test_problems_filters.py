"""Task filters: each warns of what it names and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from runners.problems.filters import examine, observe, warnings_of

pytestmark = pytest.mark.processes

FILE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        return {body}


def get_inputs():
    return [torch.rand(16, 8), torch.rand(16, 8)]


def get_init_inputs():
    return []
"""


def written(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "task.py"
    path.write_text(FILE.format(body=body))
    return path


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        ("x + 2 * y", []),
        ("1e-3 * (x + y)", ["output 0 lies within ±0.01", "output 0 hardly varies"]),
        ("1 + 1e-3 * (x + y)", ["output 0 hardly varies"]),
        ("x", ["no output depends on input 1"]),
        ("torch.ones(4, 4).cumsum(0).cumsum(1)", ["same whatever the inputs", "on input 0", "on input 1"]),
        ("(x + y).sum(1, keepdim=True).expand(16, 8)", ["output 0 is constant along axis 1"]),
        ("torch.log(x - 2) + y", ["output 0 holds NaN or infinity"]),
        ("x + y + self.calls", ["different outputs for the same inputs"]),
    ],
)
def test_each_filter_warns_of_what_it_names(tmp_path: Path, body: str, warnings: list[str]) -> None:
    problem = open_bundle(load(written(tmp_path, body)))
    found = warnings_of(observe(problem, problem.cases("cpu", Purpose.TEST)[0]))
    if "log" in body:  # NaN everywhere also hides the inputs
        found = found[:1]
    assert len(found) == len(warnings) and all(w in f for w, f in zip(warnings, found, strict=True)), found


def test_a_shipped_problem_passes_in_its_own_process() -> None:
    examination = examine(load("softmax_rows"), timeout_s=120)
    assert examination.failure is None and examination.seconds > 0
    assert not examination.warnings


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        # An exception like that of the allocation below.
        pytest.param("x + undefined_name", "NameError", marks=pytest.mark.long),
        ("__import__('os')._exit(3)", "ended early"),
        ("torch.empty(1 << 40).sum() + x", "RuntimeError"),
        ("exec('while True: pass')", "not finished after"),
    ],
)
def test_a_reference_that_fails_is_reported_not_raised(tmp_path: Path, body: str, failure: str) -> None:
    timeout_s = 3.0 if "while" in body else 120.0
    examination = examine(load(written(tmp_path, body)), timeout_s=timeout_s)
    assert examination.failure is not None and failure in examination.failure


def test_small_outputs_are_no_weakness_under_a_fine_tolerance() -> None:
    """Softmax weights hardly vary, but zeros miss its tolerance by orders of magnitude."""
    problem = open_bundle(load("softmax_rows"))
    observed = observe(problem, problem.cases("cpu", Purpose.TEST)[-1])
    assert observed.outputs[0].std() < 0.01 and not warnings_of(observed)


def test_outputs_that_hide_under_the_tolerance_are_warned_of_with_both_numbers(tmp_path: Path) -> None:
    problem = open_bundle(load(written(tmp_path, "torch.softmax((x + y).flatten().repeat(200), 0)")))
    found = warnings_of(observe(problem, problem.cases("cpu", Purpose.TEST)[0]))
    hidden = next(warning for warning in found if "hides under the tolerance" in warning)
    assert "typically 3" in hidden and "0.0001 is allowed" in hidden


def test_a_reference_that_loops_over_tensors_is_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, "x + y")
    path.write_text(path.read_text().replace("self.calls += 1", "for t in range(8): x[:, t] += t"))
    problem = open_bundle(load(path))
    found = warnings_of(observe(problem, problem.cases("cpu", Purpose.TEST)[0]))
    assert any("loops over tensors in Python (line 12)" in warning for warning in found)
