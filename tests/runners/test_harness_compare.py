"""Element-wise comparison: nothing unexpected passes as equal."""

from __future__ import annotations

import math

import pytest
import torch

from runners.harness.compare import compare
from runners.problems.base import Tolerance

EXACT = torch.tensor([[1.0, -2.0], [1000.0, 0.0]], dtype=torch.float64)
TOLERANCE = Tolerance(rtol=1e-3, atol=1e-6)


def changed(row: int, column: int, value: float) -> torch.Tensor:
    output = EXACT.float()
    output[row, column] = value
    return output


def test_output_within_tolerance_is_right_and_its_errors_are_reported() -> None:
    found = compare(changed(1, 0, 1000.5), EXACT, TOLERANCE)
    assert found.error is None
    assert found.max_abs_error == pytest.approx(0.5)
    assert found.max_rel_error == pytest.approx(5e-4)


@pytest.mark.parametrize("value", [1002.0, math.nan, math.inf, -math.inf, 0.0])
def test_one_wrong_element_fails_and_is_named(value: float) -> None:
    found = compare(changed(1, 0, value), EXACT, TOLERANCE)
    assert found.error is not None and "1 of 4" in found.error and "[1, 0]" in found.error


def test_expected_infinity_must_be_that_infinity() -> None:
    exact = torch.tensor([1e6, -1e6, 1.0], dtype=torch.float64)
    assert compare(exact.half(), exact, TOLERANCE).error is None
    assert compare(torch.tensor([-math.inf, -math.inf, 1.0]).half(), exact, TOLERANCE).error
    assert compare(torch.tensor([65504.0, -math.inf, 1.0]).half(), exact, TOLERANCE).error


def test_expected_nan_must_be_nan() -> None:
    exact = torch.tensor([math.nan, 1.0], dtype=torch.float64)
    assert compare(torch.tensor([math.nan, 1.0]), exact, TOLERANCE).error is None
    assert compare(torch.tensor([0.0, 1.0]), exact, TOLERANCE).error


def test_shape_must_be_exact() -> None:
    assert compare(torch.ones(4), EXACT, TOLERANCE).error


def test_integers_are_compared_exactly() -> None:
    exact = torch.tensor([1, 2, 3])
    nothing = Tolerance(0.0, 0.0)
    assert compare(torch.tensor([1, 2, 3], dtype=torch.int32), exact, nothing).error is None
    assert compare(torch.tensor([1, 2, 4], dtype=torch.int32), exact, nothing).error


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2, torch.bfloat16])
def test_small_floats_are_compared_too(dtype: torch.dtype) -> None:
    output = EXACT.clamp(-100, 100).to(dtype)
    exact = output.to(torch.float64)
    assert compare(output, exact, TOLERANCE).error is None
    assert compare(output, exact + 1, TOLERANCE).error
