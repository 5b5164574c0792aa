"""Element-wise comparison: nothing unexpected passes as equal."""

from __future__ import annotations

import math

import pytest
import torch

from runners.problems import compare as comparing
from runners.problems.compare import chunks, compare, loss_of, row_length
from runners.problems.tolerance import Tolerance

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


@pytest.mark.parametrize("chunk_bytes", [80 * 4, 80 * 64, 8 << 20])
def test_the_first_wrong_element_is_named_beside_the_worst(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(comparing, "CPU_CHUNK_BYTES", chunk_bytes)
    exact = torch.ones(8, 64, dtype=torch.float64)
    output = exact.float()
    output[2, 5], output[2, 60], output[6, 0] = 1.5, 3.0, math.nan
    error = compare(output, exact, TOLERANCE).error
    assert error is not None and "3 of 512 elements wrong" in error
    assert "worst at [6, 0]: got nan, expected 1; first at [2, 5]: got 1.5, expected 1" in error


def test_an_element_that_is_both_the_first_and_the_worst_is_named_once() -> None:
    error = compare(torch.tensor([5.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, 0.0]).double(), TOLERANCE).error
    assert error == "2 of 3 elements wrong; worst at [0]: got 5, expected 1"


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


NO_TOLERANCE_HELPS = Tolerance(rtol=1e-4, atol=1e-4)
MATRIX = torch.rand(256, 4096, generator=torch.Generator().manual_seed(3))


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to a float with so many explicit bits of mantissa: 10 is TF32."""
    raw = x.contiguous().view(torch.int32)
    half = 1 << (22 - bits)
    return ((raw + half) & ~(2 * half - 1)).view(torch.float32)


def judged(output: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> str | None:
    """Return what is said of an output where the reference in its own precision gives `own`."""
    return compare(output, exact, NO_TOLERANCE_HELPS, loss_of(own, exact)).error


def softmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x, 1), torch.softmax(x.double(), 1)


def test_a_straight_line_instead_of_a_softmax_is_wrong_though_every_element_is_within_tolerance() -> None:
    own, exact = softmax(MATRIX)
    line = 0.873 + 1.69 * MATRIX
    found = judged(line / line.sum(1, keepdim=True), own, exact)
    assert found is not None and "0.035 of its own norm" in found


def test_honest_softmaxes_are_right() -> None:
    own, exact = softmax(MATRIX)
    raised = torch.exp2((MATRIX - MATRIX.amax(1, keepdim=True)) * 1.4426950408889634)
    whole = torch.cat([raised[:, n::64].sum(1, keepdim=True) for n in range(64)], 1).sum(1, keepdim=True)
    assert judged(raised / whole, own, exact) is None
    assert judged(torch.softmax(MATRIX.half(), 1).float(), own, exact) is None, "half precision is within the floor"


@pytest.mark.parametrize(("bits", "right"), [(23, True), (10, True), (7, False)])
def test_tf32_is_right_in_a_float32_product_and_bfloat16_is_not(bits: int, right: bool) -> None:
    left, weights = MATRIX[:128] - 0.5, MATRIX[128:192].T - 0.5
    exact = left.double() @ weights.double()
    output = left @ weights if bits == 23 else rounded(left, bits) @ rounded(weights, bits)
    scale = 1e-6  # so that the elements hide under the tolerance
    assert (judged(output * scale, left @ weights * scale, exact * scale) is None) is right


def test_bfloat16_outputs_of_float32_sums_are_right_and_bfloat16_sums_are_not() -> None:
    left, weights = MATRIX[:128, :1024].bfloat16() * 1e-4, MATRIX[128:192, :1024].T.bfloat16() * 1e-4
    exact, own = left.double() @ weights.double(), left @ weights
    assert judged((left.float() @ weights.float()).bfloat16(), own, exact) is None
    total = torch.zeros(128, 64, dtype=torch.bfloat16)
    for k in range(1024):
        total += left[:, k : k + 1] * weights[k : k + 1]
    found = judged(total, own, exact)
    assert found is not None and "norm" in found


def test_a_row_that_cancels_may_lose_what_a_typical_one_loses_by_rounding_to_its_dtype() -> None:
    exact = (MATRIX.double() - 0.5) * 1e-4
    exact[7] *= 0.01
    own, output = exact.bfloat16(), exact + 0.006 * exact.roll(1, dims=0).abs()
    assert (output[7] - exact[7]).norm() > 0.5 * exact[7].norm()
    assert judged(output.bfloat16(), own, exact) is None
    output[7] = 0.2 * exact[8]
    found = judged(output.bfloat16(), own, exact)
    assert found is not None and "a row of the output is off by " in found


def test_a_reference_that_is_ill_conditioned_itself_allows_as_much_to_others() -> None:
    wide = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    exact = (wide.double() - wide.double()).abs() + 1e-9
    own = ((wide + 1) - 1 - wide).abs()  # nothing but rounding errors
    assert judged(own.flip(0), own, exact) is None


def test_a_wrong_row_of_small_values_is_noticed_beside_large_ones() -> None:
    exact = torch.rand(1000, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    exact[7] *= 1e-6
    wrong = exact.float()
    wrong[7] *= 1.5
    assert judged(exact.float(), exact.float(), exact) is None
    found = judged(wrong, exact.float(), exact)
    assert found is not None and "a row of the output is off by 0." in found


def test_rows_that_the_reference_itself_loses_are_not_judged() -> None:
    """A rectified row may hold one value that is almost nothing: relative errors of 1 there are no fault."""
    exact = torch.rand(1000, 64, dtype=torch.float64)
    exact[7] = 1e-9
    own, other = exact.float(), exact.float()
    own[7], other[7] = 1.2e-9, 0.7e-9
    assert judged(other, own, exact) is None


def test_zeros_masks_and_infinities_have_no_say_in_the_norm() -> None:
    exact = torch.rand(100, 64, dtype=torch.float64) * 1e-5
    exact[:50], exact[60, :32], exact[70, 3] = 0.0, -math.inf, math.nan
    assert judged(exact.float(), exact.float(), exact) is None
    assert judged(torch.where(exact == 0, 1e-5, exact).float(), exact.float(), exact) is not None
    assert judged(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.float64)) is None


def test_a_huge_range_does_not_overflow() -> None:
    exact = torch.logspace(-37, 38, 640, dtype=torch.float64).reshape(10, 64)
    assert judged(exact.float(), exact.float(), exact) is None


def test_integers_truth_values_and_empty_outputs_have_no_norm() -> None:
    for value in (torch.tensor([[0, 5, 2]]), torch.tensor([True, False]), torch.zeros(0, 4)):
        assert compare(value, value.clone(), Tolerance(0.0, 0.0)).error is None
    assert loss_of(torch.tensor([1, 2]), torch.tensor([1, 2])) is None


def test_a_scalar_has_a_norm() -> None:
    exact = torch.tensor(1e-5, dtype=torch.float64)
    assert judged(exact.float(), exact.float(), exact) is None
    assert judged(torch.tensor(1.1e-5), exact.float(), exact) is not None


def test_where_nobody_knows_what_the_reference_loses_ten_times_as_much_is_allowed() -> None:
    exact = torch.rand(100, 64, dtype=torch.float64) * 1e-5
    for factor, right in ((1.005, True), (1.02, False)):
        assert (compare((exact * factor).float(), exact, NO_TOLERANCE_HELPS).error is None) is right
    assert compare(torch.zeros(100, 64), exact, NO_TOLERANCE_HELPS, norms=False).error is None


@pytest.mark.parametrize("shape", [(7, 300), (3, 5, 7, 11), (2000,), (1, 1), (64, 3)])
@pytest.mark.parametrize("chunk_elements", [13, 100, 700])
def test_chunks_give_the_same_as_the_whole(
    shape: tuple[int, ...], chunk_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    outputs = [exact.float(), exact.float() * 1.01, exact.float()]
    outputs[2].flatten()[-1] = math.nan
    whole = [compare(output, exact, TOLERANCE, loss_of(exact.float(), exact)) for output in outputs]
    monkeypatch.setattr(comparing, "CHUNK_BYTES", comparing.ELEMENT_BYTES * chunk_elements)
    for output, expected in zip(outputs, whole, strict=True):
        found = compare(output, exact, TOLERANCE, loss_of(exact.float(), exact))
        assert (found.error, found.max_abs_error, found.max_rel_error) == (
            expected.error,
            expected.max_abs_error,
            expected.max_rel_error,
        )
        assert found.norms is not None and expected.norms is not None
        assert found.norms.overall == pytest.approx(expected.norms.overall, rel=1e-9)
        assert found.norms.worst_row == pytest.approx(expected.norms.worst_row, rel=1e-9)


def test_pieces_cover_every_element_once_and_stay_small() -> None:
    for elements, length in ((1000, 10), (1000, 1000), (7, 7), (64, 1)):
        found = list(chunks(elements, length, 13 * comparing.ELEMENT_BYTES))
        assert [n for chunk in found for n in range(chunk.start, chunk.start + chunk.size)] == list(range(elements))
        assert max(chunk.size for chunk in found) <= 13


def test_transposed_outputs_are_compared_in_their_own_order() -> None:
    exact = torch.randn(30, 70, dtype=torch.float64)
    assert judged(exact.float().t().contiguous().t(), exact.float(), exact) is None


def test_rows_are_as_many_trailing_axes_as_make_sixty_four_elements() -> None:
    lengths = [row_length(torch.Size(shape)) for shape in ((8, 100), (8, 16, 7, 7), (2, 3), (), (5, 1))]
    assert lengths == [100, 16 * 49, 6, 1, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e4, 1e30])
@pytest.mark.parametrize("wrong", [False, True])
def test_single_precision_says_what_double_precision_says(
    dtype: torch.dtype, scale: float, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = (torch.randn(300, 70, generator=torch.Generator().manual_seed(3)) * scale).to(dtype)
    output = (exact.float() * 1.0004).to(dtype)
    output[17, 5] = output[17, 5] * (1.5 if wrong else 1.0)
    quick = compare(output, exact, Tolerance(1e-2, 1e-6))
    monkeypatch.setattr(comparing, "_is_single", lambda tensor: False)
    slow = compare(output, exact, Tolerance(1e-2, 1e-6))
    assert quick.error == slow.error
    assert quick.max_abs_error == pytest.approx(slow.max_abs_error, rel=1e-5)
    assert quick.max_rel_error == pytest.approx(slow.max_rel_error, rel=1e-3)
    assert quick.norms is not None and slow.norms is not None
    assert quick.norms.overall == pytest.approx(slow.norms.overall, rel=1e-4)
    assert quick.norms.worst_row == pytest.approx(slow.norms.worst_row, rel=1e-4)
