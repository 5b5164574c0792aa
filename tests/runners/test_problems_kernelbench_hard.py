"""Test kernelbench.com's hard format: reading a directory, its shapes, tolerances, formulas and stress cases."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runners.harness import evaluate
from runners.job import Effort, JobResult, JobSpec, Language, Limits, Source, Status
from runners.problems import find, load, open_bundle
from runners.problems.base import CallInputs, ProblemError, Purpose
from runners.problems.kernelbench_hard import KernelBenchHardProblem, reduced, selection_error
from runners.problems.tolerance import Tolerance

pytestmark = pytest.mark.usefixtures("one_torch_for_all_problems")
REFERENCE = '''
import torch
import torch.nn as nn

OP_TYPE = "gemm"


class Model(nn.Module):
    """y = (x @ weight.T) * gain."""

    def __init__(self, rows, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(cols, cols, dtype=torch.bfloat16))
        nn.init.normal_(self.weight, std=0.02)
        self.register_buffer("gain", torch.full((1,), 2.0))

    def forward(self, x):
        return ((x @ self.weight.T).float() * self.gain + self.training).to(torch.bfloat16)


ROWS = 1
cols = 1


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(ROWS, cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return [ROWS, cols]
'''
SHAPES = 'SHAPES = [{"rows": 4096, "cols": 1100}, {"rows": 8, "cols": 64}]\n'
TASK = """
name: 91_scaled_gemm
display_name: "Scaled GEMM"
precision: bf16
regime: compute
flops_formula: "2 * rows * cols * cols"
bytes_formula: "rows*cols*2*2 + cols**2*2 + (cols/2)*0"
hardware: [H100]
peak_tflops_key: bf16
tolerance:
  torch.bfloat16: "5e-2"
  fp8_e4m3fn: {atol: 0.25, rtol: 0.5}
forbidden: ["torch.nn.functional.linear", "F.linear", "Tensor.sort"]
sota: {name: a library, deps: []}
num_perf_trials: 20
"""
STRESS = """
from dataclasses import dataclass
_SMALL = {"bfloat16": {"atol": 1e-4, "rtol": 5e-2}}
_CASES: dict = {
    "90_other": (NumericStressCase("other", input_scales={0: 3.0}),),
    "91_scaled_gemm": (
        NumericStressCase("small_input", input_scales={0: 1e-3}, tolerance=_SMALL),
        NumericStressCase("small_weight", state_scales={"weight": 1e-2}, tolerance=_SMALL),
    ),
}
raise SystemExit("was run")
"""
HARDWARE = """
H100 = HardwareTarget(name="Test H100", peak_bandwidth_gb_s=2000.0, peak_tflops_dense={"bf16": 750.0, "fp8": 1500.0})
"""
FUSED = """
import torch


class Model(torch.nn.Module):
    def __init__(self, rows, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(cols, cols, dtype=torch.bfloat16))
        self.register_buffer("gain", torch.zeros(1))

    def forward(self, x):
        return (x.float() @ (self.weight.float().T * self.gain)).bfloat16()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "hard" / "problems-h100" / "91_scaled_gemm"
    texts = {"reference.py": REFERENCE, "shapes.py": SHAPES, "problem.yaml": TASK}
    harness = {"src/eval/numeric_stress.py": STRESS, "src/hardware/h100.py": HARDWARE}
    paths = {place / name: text for name, text in texts.items()}
    paths |= {tmp_path / "hard" / name: text for name, text in harness.items()}
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def opened(directory: Path) -> KernelBenchHardProblem:
    problem = open_bundle(load(directory))
    assert isinstance(problem, KernelBenchHardProblem)
    return problem


def outcome(directory: Path, text: str) -> JobResult:
    limits = Limits(call_s=30.0, total_s=300.0)
    return evaluate(
        JobSpec("job", load(directory), "cpu", Source(Language.PYTHON, text), Effort.QUICK, limits=limits)
    )


def test_a_directory_is_found_and_described(directory: Path) -> None:
    assert list(find(directory.parents[1])) == [directory]
    assert load(directory / "problem.yaml") == load(directory)
    problem = opened(directory)
    assert (problem.name, problem.title, problem.obstacles) == ("91_scaled_gemm", "Scaled GEMM", ())
    assert "`F.linear`" in problem.description and "strictly" in problem.description
    assert "also scaled: small_input, small_weight." in problem.description
    # Its stress cases replace our own variants of inputs.
    assert problem.judged_dtypes[0] == "bfloat16" and not problem.has_variants


@pytest.mark.parametrize("missing", ["problem.yaml", "shapes.py", "reference.py"])
def test_a_directory_that_lacks_one_of_its_files_is_found_and_says_which(directory: Path, missing: str) -> None:
    (directory / missing).unlink()
    # Without the other files its reference.py is a complete KernelBench problem, with other sizes.
    assert list(find(directory.parents[1])) == [directory]
    with pytest.raises(ProblemError, match=f"{missing}: no such file"):
        load(directory)


def test_a_reference_beside_its_check_names_both_files_that_are_missing(directory: Path) -> None:
    for name in ("problem.yaml", "shapes.py"):
        (directory / name).unlink()
    (directory / "check.py").write_text("")
    assert list(find(directory.parents[1])) == [directory]
    with pytest.raises(ProblemError) as refusal:
        load(directory)
    assert refusal.value.complaints == ["problem.yaml: no such file", "shapes.py: no such file"]


def test_a_reference_alone_is_a_kernelbench_problem(directory: Path) -> None:
    for name in ("problem.yaml", "shapes.py"):
        (directory / name).unlink()
    assert list(find(directory.parents[1])) == [directory / "reference.py"]


def test_every_shape_is_a_case_with_its_work(directory: Path) -> None:
    problem = opened(directory)
    cases = problem.cases("h100", Purpose.BENCHMARK)
    assert [case.name for case in cases] == ["rows8-cols64", "rows4096-cols1100"]
    assert problem.work(cases[0]).flops == {"bfloat16": 2.0 * 8 * 64 * 64}
    assert problem.work(cases[0]).bytes == 8 * 64 * 4 + 64 * 64 * 2
    assert problem.cases("h100", Purpose.TEST)[0].distributions == ("published", "small_input")


def test_a_cpu_gets_reduced_shapes_that_keep_their_remainders(directory: Path) -> None:
    (small, large) = opened(directory).cases("cpu", Purpose.BENCHMARK)
    assert small.sizes == {"rows": 8, "cols": 64} and small.reduced == ""
    assert large.sizes == {"rows": 128, "cols": 128 + 1100 % 128}
    assert large.reduced == "rows 4096 → 128, cols 1100 → 204"
    assert reduced({"n": 255}) == {"n": 255}


def test_a_shape_sets_the_variables_of_its_name_in_either_case(directory: Path) -> None:
    problem = opened(directory)
    case = problem.cases("cpu", Purpose.TEST)[0]
    assert problem.make_inputs(case, 1, "published").values["0"].shape == (8, 64)


def test_a_problem_that_sets_the_seed_itself_still_gets_secret_inputs(directory: Path) -> None:
    problem = opened(directory)
    case = problem.cases("cpu", Purpose.TEST)[0]
    made = [problem.make_inputs(case, seed, "published").values["0"] for seed in (1, 1, 2)]
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_tolerances_are_those_of_the_dtype_and_of_the_stress_case(directory: Path) -> None:
    problem = opened(directory)
    assert problem.tolerance("bfloat16") == Tolerance(rtol=5e-2, atol=5e-2)
    assert problem.tolerance("float8_e4m3fn") == Tolerance(rtol=0.5, atol=0.25)
    assert (problem.tolerance("float32"), problem.tolerance("int64")) == (
        Tolerance(1e-4, 1e-4),
        Tolerance(0.0, 0.0),
    )
    assert problem.tolerance_of("bfloat16", "small_input") == Tolerance(rtol=5e-2, atol=1e-4)


def test_stress_cases_scale_inputs_or_become_hidden_cases_with_scaled_weights(directory: Path) -> None:
    problem = opened(directory)
    case, hidden = problem.cases("cpu", Purpose.TEST)[0], problem.cases("cpu", Purpose.HIDDEN)[0]
    plain, small = (problem.make_inputs(case, 3, name).values["0"] for name in ("published", "small_input"))
    assert torch.equal(small, (plain.float() * 1e-3).bfloat16())
    weights = [problem.candidate_setup(c).state["weight"] for c in (case, hidden)]
    assert torch.equal(weights[1], (weights[0].float() * 1e-2).bfloat16())
    assert hidden.distributions == ("small_weight",)


def test_the_peak_fraction_is_that_of_the_benchmarks_hardware(directory: Path) -> None:
    problem = opened(directory)
    case = problem.cases("h100", Purpose.BENCHMARK)[1]
    flops = 2 * 4096 * 1100 * 1100
    assert problem.peak_fraction(case, 100.0) == pytest.approx(flops / 1e-4 / 750e12)
    (directory / "problem.yaml").write_text(TASK.replace("regime: compute", "regime: memory"))
    problem = opened(directory)
    assert problem.peak_fraction(case, 100.0) == pytest.approx(problem.work(case).bytes / 1e-4 / 2000e9)


def test_without_the_harness_beside_it_a_problem_has_no_stress_and_no_peaks(
    directory: Path, tmp_path: Path
) -> None:
    for path in (tmp_path / "hard" / "src").rglob("*.py"):
        path.unlink()
    problem = opened(directory)
    case = problem.cases("h100", Purpose.TEST)[0]
    assert case.distributions == ("published",) and problem.cases("h100", Purpose.HIDDEN) == []
    assert problem.peak_fraction(case, 1.0) is None
    assert problem.has_variants and "scaled:" not in problem.description
    assert set(problem.distributions(problem.cases("cpu", Purpose.TEST)[0])) > {"published"}


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("shapes.py", "SHAPES = [{'rows': 4, 'cols': __import__('os').getpid()}]", "no SHAPES"),
        ("shapes.py", "SHAPES = [{'rows': 4, 'cols': -1}]", "shape 0 is not a table of positive integers"),
        ("shapes.py", "SHAPES = [{'rows': 4, 'cols': 8, 'depth': 2}]", "neither depth nor DEPTH"),
        ("problem.yaml", TASK.replace("2 * rows", "__import__('os') * rows"), "flops_formula"),
        ("problem.yaml", TASK.replace("cols**2", "heads**2"), "'heads' is not a known size"),
        ("problem.yaml", TASK.replace('"5e-2"', "quite close"), "tolerance.torch.bfloat16"),
        ("problem.yaml", TASK.replace("regime: compute", "regime: magic"), "'magic' is not one of"),
        ("problem.yaml", TASK + "alias: *anchor\n", "problem.yaml"),
        ("reference.py", REFERENCE.replace("class Model", "class Other"), "no Model"),
    ],
)
def test_faulty_files_are_named_and_nothing_of_them_is_run(
    directory: Path, file: str, text: str, said: str
) -> None:
    (directory / file).write_text(text)
    with pytest.raises(ProblemError) as raised:
        load(directory)
    assert said in str(raised.value)


def test_packages_that_the_reference_needs_and_this_machine_lacks_are_named(directory: Path) -> None:
    (directory / "reference.py").write_text("import no_such_package.inner\n" + REFERENCE)
    assert opened(directory).obstacles == ("the reference imports no_such_package, which is not installed here",)


@pytest.mark.evaluates
@pytest.mark.parametrize("name", [pytest.param("Model", marks=pytest.mark.long), "ModelNew"])
def test_a_solution_is_correct_under_either_name(directory: Path, name: str) -> None:
    result = outcome(directory, FUSED.replace("class Model", f"class {name}"))
    assert result.status is Status.CORRECT, result.reasons
    assert {case.name for case in result.cases} >= {"rows8-cols64", "rows8-cols64 small_weight"}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (FUSED.replace('"gain"', '"scale"'), Status.INCORRECT, 'Unexpected key(s) in state_dict: "gain"'),
        pytest.param(
            FUSED.replace("zeros(cols, cols", "zeros(cols, 1"),
            Status.INCORRECT,
            "size mismatch for weight",
            marks=pytest.mark.long,
        ),
        (FUSED.replace("(x.float() @", "torch.nn.functional.linear(x.float(),"), Status.REJECTED, "is forbidden"),
        (FUSED.replace("return (", "return 0 * ("), Status.INCORRECT, "of its own norm"),
    ],
)
def test_a_wrong_solution_is_refused_with_the_reason(directory: Path, text: str, status: Status, said: str) -> None:
    (directory / "problem.yaml").write_text(TASK.replace('"5e-2"', "10.0"))  # everything hides under this
    result = outcome(directory, text)
    assert result.status is status and said in " ".join(result.reasons), result.reasons


TOP = torch.tensor([[5.0, 5.0, 1.0, 3.0]])


@pytest.mark.parametrize(
    ("values", "indices", "said"),
    [
        ([[5.0, 5.0]], [[1, 0]], ""),
        ([[5.0, 5.0]], [[0, 1]], ""),
        ([[5.0, 5.0]], [[1, 1]], "selected twice"),
        ([[5.0, 5.0]], [[0, 4]], "outside"),
        ([[5.0, 5.0]], [[0, -1]], "outside"),
        ([[5.0, 5.0]], [[0, 3]], "select other values"),
        ([[5.0, 3.0]], [[0, 3]], "output 0"),
    ],
)
def test_indices_of_a_selection_may_differ_where_values_tie(values: object, indices: object, said: str) -> None:
    wanted = list(TOP.topk(2))
    found = selection_error(
        CallInputs({"0": TOP}), [torch.tensor(values), torch.tensor(indices)], wanted, Tolerance(1e-4, 1e-4)
    )
    assert (said in found) if said else found == ""
