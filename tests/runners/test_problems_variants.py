"""Test that further input distributions keep what must be kept and are used only where the reference survives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runners.problems import load, open_bundle
from runners.problems.base import CallInputs, Judging, Purpose
from runners.problems.kernelbench import KernelBenchProblem
from runners.problems.variants import VARIANTS, VariantForm, changeable, changed

UNIFORM = torch.rand(64, 64, generator=torch.Generator().manual_seed(1))
NORMAL = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
EVERY = [(name, form) for name in VARIANTS for form in VariantForm]

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, index):
        return BODY


size = 64


def get_inputs():
    return [torch.rand(size, size), torch.arange(size)]


def get_init_inputs():
    return []
"""


def only(value: torch.Tensor, name: str, form: VariantForm) -> torch.Tensor:
    found = changed(CallInputs({"0": value}), name, form).values["0"]
    assert isinstance(found, torch.Tensor)
    return found


def problem(tmp_path: Path, body: str) -> KernelBenchProblem:
    path = tmp_path / "1_Problem.py"
    path.write_text(SOURCE.replace("BODY", body))
    opened = open_bundle(load(path))
    assert isinstance(opened, KernelBenchProblem)
    return opened


def found(tmp_path: Path, body: str) -> dict[str, str]:
    return {name: form.value for name, form in problem(tmp_path, body)._survived.items()}


@pytest.mark.parametrize(("name", "form"), EVERY)
@pytest.mark.parametrize("value", [UNIFORM, NORMAL, NORMAL.half(), UNIFORM.bfloat16()])
def test_a_variant_differs_and_keeps_dtype_layout_and_order(
    value: torch.Tensor, name: str, form: VariantForm
) -> None:
    given = value.t()
    made = only(given, name, form)
    assert (made.dtype, made.shape, made.stride()) == (given.dtype, given.shape, given.stride())
    assert not torch.equal(made, given) and bool(torch.isfinite(made).all())
    order = given[given != 0].flatten().argsort()
    assert bool((made[given != 0].flatten()[order].float().diff() >= 0).all())


@pytest.mark.parametrize(("name", "form"), EVERY)
@pytest.mark.parametrize("value", [NORMAL, NORMAL.t(), NORMAL[:, ::2], UNIFORM.reshape(4, 16, 64).permute(2, 0, 1)])
def test_pieces_give_the_same_as_the_whole(
    value: torch.Tensor, name: str, form: VariantForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = only(value, name, form)
    monkeypatch.setattr("runners.problems.variants.PART", 1000)
    assert torch.allclose(only(value, name, form), whole, rtol=1e-5, atol=1e-6)
    assert not torch.equal(whole, value)


@pytest.mark.parametrize(("name", "form"), EVERY)
def test_structure_survives(name: str, form: VariantForm) -> None:
    triangular, symmetric = torch.tril(NORMAL), NORMAL + NORMAL.t()
    assert torch.equal(only(triangular, name, form) == 0, triangular == 0)
    made = only(symmetric, name, form)
    assert torch.equal(made, made.t())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_bounded_variant_stays_within_the_published_range(name: str) -> None:
    made = only(UNIFORM, name, VariantForm.BOUNDED)
    assert made.min() >= 0 and made.max() <= UNIFORM.max()


def test_free_variants_of_positive_values_have_either_sign_larger_values_and_a_tail() -> None:
    assert only(UNIFORM, "shifted", VariantForm.FREE).min() < 0
    assert only(UNIFORM, "scaled", VariantForm.FREE).max() > 2
    heavy = only(NORMAL, "heavy_tailed", VariantForm.FREE)
    assert heavy.pow(4).mean() / heavy.pow(2).mean() ** 2 > 10  # 3 for a normal distribution


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(10),
        torch.ones(10),
        (NORMAL > 0).float(),
        NORMAL > 0,
        torch.tensor([1.0, float("inf"), 2.0]),
        3,
        "a",
    ],
)
def test_indices_masks_constants_and_plain_values_stay(value: object) -> None:
    assert not changeable(value)
    assert changed(CallInputs({"0": value}), "scaled", VariantForm.FREE).values["0"] is value


def test_a_reference_that_takes_a_logarithm_gets_variants_within_its_range(tmp_path: Path) -> None:
    forms = found(tmp_path, "torch.log(x + 1e-3) + torch.sqrt(1 - x.clamp(max=1))")
    assert forms["shifted"] == "bounded"
    assert found(tmp_path, "x @ x") == dict.fromkeys(VARIANTS, "free")


def test_a_reference_that_survives_nothing_has_no_variants(tmp_path: Path) -> None:
    assert found(tmp_path, "torch.log(-x.abs() - 1)") == {}
    assert found(tmp_path, "x[:, index] + torch.rand(1)") == {}, "nothing is known of random references"


def test_variants_are_checked_after_the_published_inputs_and_come_from_the_same_seed(tmp_path: Path) -> None:
    opened = problem(tmp_path, "torch.softmax(x, -1)[index]")
    (case,) = opened.cases("cpu", Purpose.TEST)
    assert opened.distributions(case) == ("published", *VARIANTS)
    one, again, other = (opened.make_inputs(case, seed, "scaled").values for seed in (1, 1, 2))
    assert torch.equal(one["0"], again["0"]) and not torch.equal(one["0"], other["0"])
    assert torch.equal(one["0"], opened.make_inputs(case, 1, "published").values["0"] * 3)
    assert torch.equal(one["1"], torch.arange(64))


def test_a_variant_on_which_the_reference_is_not_steady_at_full_size_is_no_test(tmp_path: Path) -> None:
    opened = problem(tmp_path, "torch.softmax(x, -1)[index]")
    (case,) = opened.cases("cpu", Purpose.TEST)
    opened.prepare(case)
    assert opened.distributions(case)
    made = opened.make_inputs(case, 1, "scaled")
    endless = CallInputs({**made.values, "0": made.values["0"] * float("inf")})

    def judging(inputs: CallInputs, distribution: str) -> Judging:
        opened.expected(inputs)
        return opened.judging(distribution, lambda: inputs)

    assert judging(made, "scaled") is Judging.AS_EXPECTED
    assert judging(endless, "scaled") is Judging.NOT_AT_ALL
    assert judging(endless, "published") is Judging.AS_EXPECTED


def test_large_cases_have_no_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.problems.kernelbench.WIDE_BYTES", 1000)
    opened = problem(tmp_path, "x[index]")
    assert opened.distributions(opened.cases("cpu", Purpose.TEST)[0]) == ("published",)


def test_weights_that_a_constructor_draws_do_not_make_the_forward_random(tmp_path: Path) -> None:
    assert problem(tmp_path, "x")._call_seed is None
    drawing = SOURCE.replace("super().__init__()", "super().__init__()\n        self.b = torch.randn(3)")
    (tmp_path / "2.py").write_text(drawing)
    (tmp_path / "3.py").write_text(SOURCE.replace("super().__init__()", "self.d = torch.nn.Dropout(0.5)"))
    assert open_bundle(load(tmp_path / "2.py"))._call_seed is None  # type: ignore[attr-defined]
    assert open_bundle(load(tmp_path / "3.py"))._call_seed is not None  # type: ignore[attr-defined]
    assert problem(tmp_path, "x + torch.rand_like(x)")._call_seed is not None
