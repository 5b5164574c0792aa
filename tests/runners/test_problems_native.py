"""Test the native problem format: what is read, what is refused, and what the shipped problems promise."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from runners import tunables
from runners.job import Language, Source, TunableValue
from runners.problems import load, open_bundle, shipped
from runners.problems.base import Argument, CallInputs, Case, Problem, ProblemError, Purpose, Role
from runners.problems.native import NativeProblem

TUNED = ["fp8_block_gemm", "layernorm_residual", "matmul_bias_gelu", "softmax_rows"]
TENSOR_CORES = ["attention_forward", "bf16_gemm_bias_gelu", "fp8_gemm_bias", "grouped_gemm", "w4a16_gemm"]
NAMES = sorted([*TUNED, *TENSOR_CORES])
C_TYPES = {"float32": ctypes.c_float, "int64": ctypes.c_int64}

TOML = """
format = 1
name = "doubled"
title = "Twice the input"
symbol = "doubled"
languages = ["cpp"]
[provenance]
author = "someone"
[[arguments]]
name = "x"
role = "input"
dtype = "float32"
shape = ["n"]
[[arguments]]
name = "out"
role = "output"
dtype = "float32"
shape = ["n"]
[[arguments]]
name = "n"
role = "size"
[tolerances.float32]
rtol = 1e-6
atol = 0
[work.flops]
float32 = "n"
[[cases]]
name = "small"
purpose = "test"
sizes = { n = 5 }
[[seeds]]
name = "reference"
title = "torch"
language = "python"
file = "seeds/reference.py"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write a sound native problem to disk."""
    root = tmp_path / "doubled"
    (root / "seeds").mkdir(parents=True)
    (root / "problem.toml").write_text(TOML)
    (root / "description.md").write_text("# Doubled\n")
    (root / "reference.py").write_text("def reference(x):\n    return x * 2\n")
    (root / "seeds" / "reference.py").write_text("def custom_kernel(x):\n    return x * 2\n")
    return root


def opened(name: str) -> NativeProblem:
    problem = open_bundle(load(name))
    assert isinstance(problem, NativeProblem)
    return problem


def complaints_of(directory: Path) -> list[str]:
    with pytest.raises(ProblemError) as caught:
        load(directory)
    return caught.value.complaints


def excess(problem: Problem, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Return the largest error in units of the tolerance; infinite where something is not finite."""
    worst = 0.0
    for out, exact in zip(outputs, expected, strict=True):
        tolerance = problem.tolerance(str(out.dtype).removeprefix("torch."))
        allowed = tolerance.atol + tolerance.rtol * exact.double().abs()
        ratio = ((out.double() - exact.double()).abs() / allowed).nan_to_num(float("inf"))
        worst = max(worst, float(ratio.max()))
    return worst


def every_check(problem: Problem) -> list[tuple[Case, str]]:
    cases = [case for purpose in (Purpose.TEST, Purpose.HIDDEN) for case in problem.cases("cpu", purpose)]
    return [(case, distribution) for case in cases for distribution in case.distributions]


def test_a_sound_directory_is_read_and_runs(directory: Path) -> None:
    problem = open_bundle(load(directory))
    case = problem.cases("cpu", Purpose.TEST)[0]
    inputs = problem.make_inputs(case, 7, "normal")
    assert torch.equal(problem.reference(inputs)[0], inputs.values["x"] * 2)
    work = problem.work(case)
    assert work is not None and (work.bytes, work.flops) == (40.0, {"float32": 5.0})


def test_a_bundle_needs_no_directory_any_more(directory: Path) -> None:
    bundle = load(directory)
    shutil.rmtree(directory)
    assert open_bundle(bundle).seeds[0].source.text.startswith("def custom_kernel")


def test_every_fault_of_a_directory_is_named_with_its_file(directory: Path) -> None:
    (directory / "description.md").unlink()
    (directory / "reference.py").write_text("def something_else():\n    pass\n")
    broken = TOML.replace('dtype = "float32"', 'dtype = "float33"', 1).replace("n = 5", "m = 5")
    (directory / "problem.toml").write_text(broken + "\n[surprise]\n")
    complaints = complaints_of(directory)
    for part in ("description.md", "reference.py: no function reference", "float33", "'n' is missing", "surprise"):
        assert any(part in complaint for complaint in complaints), (part, complaints)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('shape = ["n"]', 'shape = ["n - 5"]', "is 0"),
        ('shape = ["n"]', 'shape = ["n.__class__"]', "not allowed"),
        ('shape = ["n"]', 'shape = ["9 ** 9 ** 9"]', "exponent"),
        ("rtol = 1e-6", "rtol = nan", "rtol must lie"),
        ("rtol = 1e-6", 'rtol = "1"', "expected"),
        ('role = "output"', 'role = "input"', 'no argument with role "output"'),
        ("[tolerances.float32]", "[tolerances.float64]", "none for float32"),
        ('purpose = "test"', 'purpose = "benchmark"', 'no case with purpose "test"'),
        ('float32 = "n"', 'float32 = "rows"', "reads 'rows'"),
        ("format = 1", "format = 2", "format 1"),
        ("[provenance]", '[provenance]\nautocast = "float99"', "expected bfloat16 or float16, got 'float99'"),
        ("[provenance]", "[provenance]\nautocast = { a = 1 }", "expected bfloat16 or float16, got {'a': 1}"),
        ('name = "doubled"', 'name = "../doubled"', "not a C identifier"),
        ("format = 1", "format = ", "not TOML"),
        ('file = "seeds/reference.py"', 'file = "../../etc/passwd"', "not a text file of this directory"),
        ("n = 5", 'n = "5"', "expected a number"),
    ],
)
def test_a_fault_is_refused_and_named(directory: Path, old: str, new: str, part: str) -> None:
    (directory / "problem.toml").write_text(TOML.replace(old, new))
    assert any(part in complaint for complaint in complaints_of(directory))


def test_links_are_not_followed(directory: Path) -> None:
    (directory / "description.md").unlink()
    (directory / "description.md").symlink_to("/etc/hostname")
    assert any("links are not followed" in complaint for complaint in complaints_of(directory))


def test_a_huge_file_is_refused(directory: Path) -> None:
    (directory / "notes.md").write_text("x" * (600 << 10))
    assert any(complaint.startswith("notes.md") for complaint in complaints_of(directory))


def test_binary_files_stay_out_of_the_bundle(directory: Path) -> None:
    (directory / "picture.bin").write_bytes(b"\xff\xfe\x00")
    assert "picture.bin" not in load(directory).files


def test_an_unknown_name_lists_what_is_shipped() -> None:
    with pytest.raises(ProblemError, match="softmax_rows"):
        load("no_such_problem")


def test_these_problems_ship() -> None:
    assert shipped() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_keeps_its_own_tolerance(name: str) -> None:
    problem = opened(name)
    for case, distribution in every_check(problem):
        inputs = problem.make_inputs(case, 3, distribution)
        assert excess(problem, problem.reference(inputs), problem.expected(inputs)) < 0.5, (case.name, distribution)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_follow_seed_and_layout(name: str) -> None:
    problem = opened(name)
    for case, distribution in every_check(problem):
        one, same, other = (problem.make_inputs(case, seed, distribution).values for seed in (5, 5, 6))
        for argument in problem.arguments:
            if argument.role is not Role.INPUT:
                continue
            spec, value = problem.layout(argument, case), one[argument.name]
            assert tuple(value.stride()) == spec.strides and tuple(value.shape) == spec.shape
            assert torch.equal(value.float(), same[argument.name].float())
        assert any(
            not torch.equal(one[k].float(), other[k].float()) for k in one if isinstance(one[k], torch.Tensor)
        )


def test_a_half_precision_exponential_misses_the_softmax_tolerance() -> None:
    problem = opened("softmax_rows")
    case = problem.cases("cpu", Purpose.TEST)[-1]
    inputs = problem.make_inputs(case, 3, "normal")
    x = inputs.values["x"]
    weights = torch.exp(x - x.max(-1, keepdim=True).values).half().float()
    assert excess(problem, [weights / weights.sum(-1, keepdim=True)], problem.expected(inputs)) > 1


def test_a_variance_by_difference_of_squares_misses_the_layernorm_tolerance() -> None:
    problem = opened("layernorm_residual")
    case = problem.cases("cpu", Purpose.TEST)[-1]
    inputs = problem.make_inputs(case, 3, "adversarial")
    v = inputs.values
    summed = v["x"] + v["residual"]
    mean = summed.mean(-1, keepdim=True)
    variance = (summed**2).mean(-1, keepdim=True) - mean**2
    out = (summed - mean) / (variance.clamp(min=0) + v["eps"]).sqrt() * v["weight"] + v["bias"]
    assert excess(problem, [summed, out], problem.expected(inputs)) > 1


@pytest.mark.parametrize("distribution", ["normal", "large_range", "adversarial"])
def test_a_product_of_rounded_factors_misses_the_gelu_tolerance(distribution: str) -> None:
    """TF32 keeps ten bits of mantissa."""
    problem = opened("matmul_bias_gelu")
    case = next(
        c for c in problem.cases("cpu", Purpose.TEST) if distribution in c.distributions and c.sizes["k"] > 200
    )
    inputs = problem.make_inputs(case, 3, distribution)
    rounded = {k: tf32(v) if k in ("a", "b") else v for k, v in inputs.values.items()}
    assert excess(problem, problem.reference(CallInputs(rounded)), problem.expected(inputs)) > 1


def test_a_sum_in_half_precision_misses_the_gelu_tolerance() -> None:
    problem = opened("matmul_bias_gelu")
    case = problem.cases("cpu", Purpose.TEST)[-1]
    inputs = problem.make_inputs(case, 3, "near_constant")
    a, b, bias = inputs.values.values()
    product = torch.zeros(case.sizes["m"], case.sizes["n"], dtype=torch.float16)
    for p in range(0, case.sizes["k"], 8):
        product = (product + a[:, p : p + 8] @ b[p : p + 8]).half()
    out = torch.nn.functional.gelu(product.float() + bias, approximate="tanh")
    assert excess(problem, [out], problem.expected(inputs)) > 1


def tf32(value: torch.Tensor) -> torch.Tensor:
    bits = value.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(("distribution", "step"), [("near_constant", 4), ("adversarial", 128)])
def test_sums_kept_in_bfloat16_miss_the_fp8_tolerance(distribution: str, step: int) -> None:
    problem = opened("fp8_block_gemm")
    case = next(c for c in problem.cases("cpu", Purpose.HIDDEN) if distribution in c.distributions)
    inputs = problem.make_inputs(case, 3, distribution)
    total = torch.zeros(case.sizes["m"], case.sizes["n"], dtype=torch.bfloat16)
    for block in range(case.sizes["k"] // step):
        part = dict(inputs.values)
        mask = torch.zeros(case.sizes["k"])
        mask[block * step : (block + 1) * step] = 1
        part["a"] = (part["a"].float() * mask).to(torch.float8_e4m3fnuz)
        total = (total + problem.reference(CallInputs(part))[0]).to(torch.bfloat16)
    assert excess(problem, [total], problem.expected(inputs)) > 1


def test_fp8_block_gemm_has_the_official_shapes() -> None:
    problem = opened("fp8_block_gemm")
    benchmarks = {tuple(c.sizes.values()) for c in problem.cases("gfx942", Purpose.BENCHMARK)}
    tests = {tuple(c.sizes.values()) for c in problem.cases("gfx942", Purpose.TEST)}
    assert len(benchmarks) == 18 and (6144, 4608, 7168) in benchmarks and (1024, 7168, 256) in benchmarks
    ours = {(96, 128, 256)}
    assert len(tests - ours) == 11 and (64, 64, 128) in tests and (512, 1536, 7168) in tests
    assert not benchmarks & {tuple(c.sizes.values()) for c in problem.cases("cpu", Purpose.BENCHMARK)}


@pytest.mark.parametrize("name", TENSOR_CORES)
def test_a_tensor_core_problem_has_seeds_for_an_h100_and_sizes_that_need_it(name: str) -> None:
    problem = opened(name)
    assert {Language.CPP, Language.CUDA, Language.TRITON} <= {seed.source.language for seed in problem.seeds}
    largest = problem.work(problem.cases("sm_90", Purpose.BENCHMARK)[-1])
    assert largest is not None and sum(largest.flops.values()) > 1e11
    for case in problem.cases("cpu", Purpose.BENCHMARK):
        work = problem.work(case)
        assert work is not None and sum(work.flops.values()) < 1e8, case.name


@pytest.mark.parametrize("distribution", ["near_constant", "adversarial"])
def test_sums_kept_in_bfloat16_miss_the_tolerance_of_bf16_gemm(distribution: str) -> None:
    problem = opened("bf16_gemm_bias_gelu")
    case = problem.cases("cpu", Purpose.TEST)[-1]
    inputs = problem.make_inputs(case, 3, distribution)
    a, b, bias = inputs.values.values()
    total = sum_in_bfloat16(a, b, 2)
    out = torch.nn.functional.gelu(total.float() + bias.float(), approximate="tanh").bfloat16()
    assert excess(problem, [out], problem.expected(inputs)) > 1


def test_sums_kept_in_bfloat16_miss_the_tolerance_of_fp8_gemm() -> None:
    problem = opened("fp8_gemm_bias")
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[-1], 3, "near_constant")
    a, b, a_scale, b_scale, bias = inputs.values.values()
    out = sum_in_bfloat16(a, b, 2).float() * a_scale[:, None] * b_scale + bias.float()
    assert excess(problem, [out.bfloat16()], problem.expected(inputs)) > 1


def sum_in_bfloat16(a: torch.Tensor, b: torch.Tensor, step: int) -> torch.Tensor:
    """Return a @ b.T with a sum that is rounded to bfloat16 after every `step` terms."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    for start in range(0, a.shape[1], step):
        part = a[:, start : start + step].float() @ b[:, start : start + step].float().T
        total = (total + part).bfloat16()
    return total


def test_scores_kept_in_bfloat16_miss_the_tolerance_of_attention() -> None:
    problem = opened("attention_forward")
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[1], 3, "large_range")
    q, k, v = (inputs.values[name].float() for name in ("q", "k", "v"))
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).bfloat16().float()
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    out = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v
    assert excess(problem, [out.bfloat16()], problem.expected(inputs)) > 1


def test_groups_of_experts_may_be_empty_and_hold_all_tokens_together() -> None:
    problem = opened("grouped_gemm")
    case = problem.cases("cpu", Purpose.TEST)[-1]
    for seed in range(20):
        for distribution in ("normal", "near_constant"):
            ends = problem.make_inputs(case, seed, distribution).values["offsets"].tolist()
            assert ends == sorted(ends) and ends[0] >= 0 and ends[-1] == case.sizes["tokens"]


def test_cases_come_smallest_first() -> None:
    problem = opened("fp8_block_gemm")
    sizes = [problem.work(case).bytes for case in problem.cases("gpu", Purpose.BENCHMARK)]  # type: ignore[union-attr]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("name", TUNED)
def test_tuned_seeds_declare_a_space_worth_searching(name: str) -> None:
    tuned = [s for s in opened(name).seeds if "@tune" in s.source.text and s.source.language is Language.CPP]
    assert tuned
    for seed in tuned:
        space = tunables.parse(seed.source.text)
        assert sum(1 for _ in space.enumerate_valid()) >= 200 and len(space.flag_sets) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_the_torch_reference_is_a_seed(name: str) -> None:
    problem = opened(name)
    seed = next(s for s in problem.seeds if s.name == "reference")
    namespace: dict[str, object] = {}
    exec(seed.source.text, namespace)  # noqa: S102 - a shipped seed
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 1, "normal")
    result = namespace["custom_kernel"](*inputs.values.values())  # type: ignore[operator]
    outputs = list(result) if isinstance(result, tuple) else [result]
    assert excess(problem, outputs, problem.expected(inputs)) <= 1


def corner_choices(text: str) -> list[dict[str, TunableValue]]:
    """Return the defaults, the first and the last valid combination."""
    valid = list(tunables.parse(text).enumerate_valid())
    return [{}, valid[0], valid[-1]] if len(valid) > 1 else [{}]


@pytest.mark.processes
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_seeds_are_right_on_every_case(name: str, tmp_path: Path) -> None:
    problem = opened(name)
    for seed in (s for s in problem.seeds if s.source.language is Language.CPP):
        for number, choice in enumerate(corner_choices(seed.source.text)):
            function = built(problem, seed.source, choice, tmp_path / f"{seed.name}{number}")
            for case, distribution in every_check(problem):
                inputs = problem.make_inputs(case, 9, distribution)
                outputs = called(problem, function, case, inputs)
                worst = excess(problem, outputs, problem.expected(inputs))
                assert worst <= 1, (seed.name, choice, case.name, distribution, worst)


def built(problem: Problem, source: Source, choice: Mapping[str, object], stem: Path) -> Callable[..., object]:
    stem.with_suffix(".cpp").write_text(source.text)
    macros = [f"-D{key}={value}" for key, value in choice.items()]
    flags = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC", *macros]
    output = stem.with_suffix(".so")
    subprocess.run(
        ["g++", *flags, str(stem.with_suffix(".cpp")), "-o", str(output)], check=True, capture_output=True
    )
    return ctypes.CDLL(str(output))[problem.symbol]


def called(problem: Problem, function: Callable[..., object], case: Case, inputs: CallInputs) -> list[torch.Tensor]:
    outputs = [
        torch.full(s.shape, float("nan"), dtype=getattr(torch, s.dtype)) for s in problem.outputs(case) or ()
    ]
    left = iter(outputs)

    def value(argument: Argument) -> object:
        if argument.role is Role.INPUT:
            return ctypes.c_void_p(inputs.values[argument.name].data_ptr())
        if argument.role is Role.OUTPUT:
            return ctypes.c_void_p(next(left).data_ptr())
        return C_TYPES[argument.dtype](case.sizes[argument.name])

    function(*(value(argument) for argument in problem.arguments))
    return outputs
