"""KernelBench files: reading, reduction to CPU sizes, and equal weights without a secret."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
import torch

from runners.candidate.entry import Setup, entry_of, load_matching
from runners.job import Language
from runners.problems import find, load, open_bundle
from runners.problems.base import ProblemError, Purpose
from runners.problems.kernelbench import KernelBenchProblem
from runners.problems.reduction import estimate
from runners.problems.structure import positional

LINEAR = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer and a ReLU."""

    def __init__(self, in_features, out_features):
        super(Model, self).__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.relu(self.linear(x))


batch_size, in_features = 512, 4096 * 2
out_features = 8192


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
'''

DROPOUT = LINEAR.replace("torch.relu(self.linear(x))", "nn.functional.dropout(self.linear(x), 0.5)")


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    path = tmp_path / "7_Linear_ReLU.py"
    path.write_text(LINEAR)
    return path


def opened(path: Path) -> KernelBenchProblem:
    problem = open_bundle(load(path))
    assert isinstance(problem, KernelBenchProblem)
    return problem


def candidate(problem: KernelBenchProblem, source: str) -> object:
    namespace: dict[str, object] = {}
    exec(source, namespace)  # noqa: S102 - written in this file
    setup = problem.candidate_setup(problem.cases("cpu", Purpose.TEST)[0])
    given = Setup(problem.entry_point, positional(setup.init), setup.state, setup.weight_seed, setup.call_seed)
    return entry_of(namespace, given)


def test_a_file_is_recognised_and_described(linear: Path) -> None:
    problem = opened(linear)
    assert (problem.format, problem.title, problem.entry_point) == ("kernelbench", "Linear ReLU", "ModelNew")
    assert problem.description.startswith("A linear layer and a ReLU.")
    assert problem.languages == (Language.PYTHON, Language.TRITON)


def test_reading_does_not_run_the_file(tmp_path: Path) -> None:
    path = tmp_path / "1_Bomb.py"
    path.write_text(LINEAR + "\nraise SystemExit('was run')\n")
    assert opened(path).name == "1_Bomb"


def test_a_gpu_case_keeps_the_published_sizes(linear: Path) -> None:
    (case,) = opened(linear).cases("gfx942", Purpose.BENCHMARK)
    assert case.sizes == {"batch_size": 512, "in_features": 8192, "out_features": 8192}
    assert not case.reduced and case.purpose is Purpose.BENCHMARK


def test_a_cpu_case_is_reduced_and_says_what_was(linear: Path) -> None:
    problem = opened(linear)
    (case,) = problem.cases("cpu", Purpose.TEST)
    assert case.sizes["batch_size"] <= 16 and case.sizes["in_features"] == case.sizes["out_features"] <= 1024
    assert "in_features 8192 → " in case.reduced and "batch_size 512 → " in case.reduced
    (x,) = problem.make_inputs(case, 3, "published").values.values()
    assert tuple(x.shape) == (case.sizes["batch_size"], case.sizes["in_features"])


def test_small_problems_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "2_Small.py"
    path.write_text(LINEAR.replace("512, 4096 * 2", "4, 32").replace("8192", "16"))
    (case,) = opened(path).cases("cpu", Purpose.TEST)
    assert case.sizes == {"batch_size": 4, "in_features": 32, "out_features": 16} and not case.reduced


def test_bounds_of_random_integers_and_fill_values_are_no_extents(tmp_path: Path) -> None:
    lines = (
        "V, B, L = 50000, 37, 53",
        "def get_inputs():",
        "    return [torch.randint(0, V, (B, L)), torch.randint(high=V, size=(B, L)), torch.full((B, L), 9999.0),",
        "            torch.randn(B, L)]",
        "def get_init_inputs(): return []",
    )
    tree = ast.parse("\n".join(lines))
    assert estimate(tree, {"V": 50000, "B": 37, "L": 53}).elements == 4 * 37 * 53


@pytest.mark.parametrize(
    "call", ["randn(*SHAPE, 7)", "randn(3, *REST)", "rand(SHAPE)", "ones(size=SHAPE)", "rand(3, 5)"]
)
def test_extents_of_a_shape_that_is_spread_or_named_count(call: str) -> None:
    tree = ast.parse(f"SHAPE = (3, 5)\nREST = (5, 7)\ndef get_inputs():\n    return [torch.{call}]\n")
    sevens = 7 if "7" in call or "REST" in call else 1
    assert estimate(tree, {}).elements == 3 * 5 * sevens


def test_groups_kernels_and_strides_are_not_reduced(tmp_path: Path) -> None:
    path = tmp_path / "3_Conv.py"
    path.write_text(LINEAR + "\nkernel_size = 31\nstride = 33\nnum_groups = 64\n")
    (case,) = opened(path).cases("cpu", Purpose.TEST)
    assert (case.sizes["kernel_size"], case.sizes["stride"], case.sizes["num_groups"]) == (31, 33, 64)


def test_proportions_survive_the_reduction(tmp_path: Path) -> None:
    """A layer norm over twice a width needs that to stay twice the width."""
    path = tmp_path / "3_Norm.py"
    path.write_text(LINEAR + "\nwidth = 128\nnorm_width = 256\nheight = depth = 64\n")
    (case,) = opened(path).cases("cpu", Purpose.TEST)
    assert case.sizes["norm_width"] == 2 * case.sizes["width"] < 256
    assert case.sizes["height"] == case.sizes["depth"]


def test_sizes_for_a_cpu_can_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "4_Declared.py"
    path.write_text(LINEAR + "\n# @cpu batch_size=3 in_features=40\n")
    (case,) = opened(path).cases("cpu", Purpose.TEST)
    assert case.sizes == {"batch_size": 3, "in_features": 40, "out_features": 8192}
    assert case.reduced == "batch_size 512 → 3, in_features 8192 → 40"


@pytest.mark.parametrize("words", ["depth=4", "batch_size=0", "batch_size=x", "batch_size"])
def test_a_faulty_declaration_of_sizes_is_refused(tmp_path: Path, words: str) -> None:
    path = tmp_path / "4_Declared.py"
    path.write_text(LINEAR + f"\n# @cpu {words}\n")
    with pytest.raises(ProblemError, match=r"4_Declared\.py: @cpu"):
        load(path)


def test_the_same_seed_gives_the_same_inputs_and_another_others(linear: Path) -> None:
    problem = opened(linear)
    (case,) = problem.cases("cpu", Purpose.TEST)
    one, same, other = (problem.make_inputs(case, seed, "published").values["0"] for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_weights_do_not_depend_on_the_input_seed(linear: Path) -> None:
    problem = opened(linear)
    (case,) = problem.cases("cpu", Purpose.TEST)
    problem.make_inputs(case, 1, "published")
    before = problem.candidate_setup(case).state["linear.weight"]
    problem.make_inputs(case, 2, "published")
    assert torch.equal(before, problem.candidate_setup(case).state["linear.weight"])


def test_a_candidate_with_the_same_parameters_gets_the_weights(linear: Path) -> None:
    problem = opened(linear)
    (case,) = problem.cases("cpu", Purpose.TEST)
    inputs = problem.make_inputs(case, 5, "published")
    model = candidate(problem, problem.seeds[0].source.text)
    torch.testing.assert_close(model(*positional(inputs)), problem.reference(inputs)[0])  # type: ignore[operator]


def test_a_candidate_with_other_names_draws_the_same_weights_from_the_public_seed(linear: Path) -> None:
    problem = opened(linear)
    (case,) = problem.cases("cpu", Purpose.TEST)
    inputs = problem.make_inputs(case, 5, "published")
    renamed = problem.seeds[0].source.text.replace("self.linear", "self.projection")
    model = candidate(problem, renamed)
    torch.testing.assert_close(model(*positional(inputs)), problem.reference(inputs)[0])  # type: ignore[operator]


def test_weights_are_not_loaded_where_a_shape_differs() -> None:
    model = torch.nn.Linear(3, 2)
    before = model.weight.clone()
    assert not load_matching(model, {"weight": torch.ones(3, 2), "bias": torch.ones(2)})
    assert torch.equal(model.weight, before)


def test_the_expected_output_has_double_precision(linear: Path) -> None:
    problem = opened(linear)
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 5, "published")
    assert problem.expected(inputs)[0].dtype is torch.float64
    assert problem.reference(inputs)[0].dtype is torch.float32


def test_a_model_that_draws_random_numbers_is_seeded_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "66_Dropout.py"
    path.write_text(DROPOUT)
    problem = opened(path)
    (case,) = problem.cases("cpu", Purpose.TEST)
    inputs = problem.make_inputs(case, 5, "published")
    model = candidate(problem, problem.seeds[0].source.text)
    torch.manual_seed(1234)
    torch.testing.assert_close(model(*positional(inputs)), problem.expected(inputs)[0])  # type: ignore[operator]


@pytest.mark.parametrize("missing", ["class Model", "def get_inputs", "def get_init_inputs"])
def test_a_file_without_one_of_the_three_names_is_refused(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(LINEAR.replace(missing, missing + "Other"))
    with pytest.raises(ProblemError, match=f"bad.py: no {missing.split()[1]}$"):
        load(path)


def test_a_file_that_is_not_python_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("x = 1\nclass Model(:\n")
    with pytest.raises(ProblemError, match="line 2"):
        load(path)


@pytest.mark.parametrize("data", [b"\xff\xfeclass Model", b"class Model\0"])
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.py"
    path.write_bytes(data)
    with pytest.raises(ProblemError, match=r"bad\.py"):
        load(path)


def test_deeply_nested_source_is_refused_and_does_not_crash(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(LINEAR + "\nx = " + "(" * 5000 + ")" * 5000)
    with pytest.raises(ProblemError, match=r"bad\.py"):
        load(path)


def test_a_directory_lists_its_problems_in_numerical_order(tmp_path: Path, linear: Path) -> None:
    for name in ("10_B.py", "2_A.py"):
        (tmp_path / name).write_text(LINEAR)
    (tmp_path / "helper.py").write_text("x = 1\n")
    assert [path.name for path in find(tmp_path)] == ["2_A.py", "7_Linear_ReLU.py", "10_B.py"]
    with pytest.raises(ProblemError, match="holds several problems"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("built", "called", "draws"),
    [
        ("nn.Parameter(torch.rand(3))", "x", False),
        ("nn.Dropout(0.5)", "self.linear(x)", True),
        ("nn.Linear(in_features, out_features)", "x + torch.randn_like(x)", True),
    ],
)
def test_only_what_a_call_draws_needs_a_seed_before_each_call(
    tmp_path: Path, built: str, called: str, draws: bool
) -> None:
    path = tmp_path / "5_Draws.py"
    text = LINEAR.replace("nn.Linear(in_features, out_features)", built)
    path.write_text(text.replace("torch.relu(self.linear(x))", called))
    problem = opened(path)
    (case,) = problem.cases("cpu", Purpose.TEST)
    assert (problem.candidate_setup(case).call_seed is not None) == draws


def test_a_seed_before_each_call_is_set_as_torch_sets_it_and_costs_next_to_nothing() -> None:
    drawn = entry_of({"custom_kernel": lambda: torch.rand(3)}, Setup("custom_kernel", [], {}, None, 42))
    torch.manual_seed(42)
    assert torch.equal(torch.rand(3), drawn()) and torch.equal(drawn(), drawn())
    started = time.perf_counter()
    for _ in range(1000):
        drawn()
    assert (time.perf_counter() - started) / 1000 < 100e-6
