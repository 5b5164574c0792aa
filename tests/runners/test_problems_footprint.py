"""The bytes of a case are counted without allocating them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from runners.problems import load, open_bundle
from runners.problems.base import Footprint, Purpose
from runners.problems.footprint import footprint_of, held_bytes
from runners.problems.kernelbench import WIDE_BYTES

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width, dtype=torch.bfloat16)
        self.register_buffer("table", torch.zeros(10, dtype=torch.int64), persistent=False)

    def forward(self, x, index):
        return BODY


rows, width = 1 << 21, 1 << 16


def get_inputs():
    return [torch.rand(rows, width).to(torch.bfloat16), torch.arange(rows)]


def get_init_inputs():
    return [width]
"""
ROWS, WIDTH = 1 << 21, 1 << 16
INPUTS, WEIGHTS = ROWS * WIDTH * 2 + ROWS * 8, WIDTH * WIDTH * 2 + WIDTH * 2 + 80


UNCALLED = """
import sys

from runners.problems import load, open_bundle
from runners.problems.base import Purpose

problem = open_bundle(load(sys.argv[1]))
print(*problem.distributions(problem.cases("h100", Purpose.TEST)[0]), "sympy" in sys.modules)
"""


def counted(tmp_path: Path, body: str) -> Footprint | None:
    path = tmp_path / "1_Large.py"
    path.write_text(SOURCE.replace("BODY", body))
    problem = open_bundle(load(path))
    return footprint_of(problem, problem.cases("h100", Purpose.TEST)[0])


def test_inputs_and_weights_are_counted_without_calling_the_model(tmp_path: Path) -> None:
    """Expect no sympy: it is one of 900 modules that a first call on the meta device imports."""
    path = tmp_path / "1_Drawn.py"
    # As nearly all of KernelBench draw their inputs: conversions and ranges are arithmetic there.
    drawn = SOURCE.replace(").to(torch", ", dtype=torch").replace("arange(rows)", "zeros(rows, dtype=torch.int64)")
    path.write_text(drawn.replace("BODY", "self.linear(x)"))
    problem: Any = open_bundle(load(path))
    (case,) = problem.cases("h100", Purpose.TEST)
    assert held_bytes(lambda: problem._built(case.sizes)) == INPUTS + WEIGHTS > WIDE_BYTES
    found = subprocess.run(
        [sys.executable, "-c", UNCALLED, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.split() == ["published", "False"]


def test_a_model_of_a_quarter_of_a_terabyte_is_counted(tmp_path: Path) -> None:
    found = counted(tmp_path, "(self.linear(x).float(), index)")
    assert found == Footprint(INPUTS, WEIGHTS, ROWS * WIDTH * 4 + ROWS * 8)
    assert found.total == INPUTS + WEIGHTS + ROWS * WIDTH * 4 + ROWS * 8


def test_outputs_whose_size_depends_on_values_are_unknown(tmp_path: Path) -> None:
    assert counted(tmp_path, "x[: int(index[3].item())]") == Footprint(INPUTS, WEIGHTS, None)


def test_code_that_cannot_run_without_data_has_no_footprint(tmp_path: Path) -> None:
    path = tmp_path / "2_Values.py"
    path.write_text(SOURCE.replace("torch.arange(rows)", "torch.arange(int(torch.rand(1)))"))
    problem = open_bundle(load(path))
    assert footprint_of(problem, problem.cases("h100", Purpose.TEST)[0]) is None


def test_declared_layouts_are_counted() -> None:
    problem = open_bundle(load("softmax_rows"))
    case = problem.cases("cpu", Purpose.TEST)[0]
    elements = case.sizes["rows"] * case.sizes["cols"]
    assert footprint_of(problem, case) == Footprint(4 * elements, 0, 4 * elements)
