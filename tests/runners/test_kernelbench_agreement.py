"""Test the kernels that both evaluators time, and the rules by which a difference between the two counts as
explained."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks.agreement_rules import AGREES, NOT_COMPARED, UNEXPLAINED, Ours, explained
from benchmarks.kernelbench_agreement import KERNELS, Kernel, Results, problem_file, selected
from benchmarks.kernelbench_evaluator import Evaluated, evaluate_in_process

FILES = sorted(KERNELS.rglob("*.py"))
FAKE_EVALUATION = """
from types import SimpleNamespace
from . import timing

def eval_kernel_against_ref(problem, candidate, **options):
    for model in (candidate, problem):
        timing.get_timing_function("cuda_event")(model, [], num_trials=options["num_perf_trials"])
    return SimpleNamespace(compiled=True, correctness="wrong" not in candidate)
"""
FAKE_TIMING = """
def get_timing_function(method):
    return lambda model, inputs, num_trials: [float(len(model))] * num_trials
"""


def ours(call: float, device: float, us: tuple[float, float] = (1000.0, 1000.0), half: float = 0.005) -> Ours:
    """Return figures of ours; `us` are device and call time of the candidate."""
    return Ours(
        "correct", 5.0,
        device=[device, device, device],
        call=[call, call * (1 - half), call * (1 + half)],
        device_us={"candidate": us[0], "reference": us[0] * device},
        call_us={"candidate": us[1], "reference": us[1] * call},
    )  # fmt: skip


def run(
    speedup: float, loop: float, *, first: float | None = None, grad: float | None = None, ms: float = 1.0
) -> Evaluated:
    """Return a run of KernelBench's whose candidate takes `ms`, with the speedups by each way of timing."""
    ratios = {"no_grad": loop, "grad": loop if grad is None else grad}
    loops = {mode: {"candidate": [ms], "reference": [ms * ratio]} for mode, ratio in ratios.items()}
    first = speedup if first is None else first
    figures = {
        "candidate": [ms] * 4,
        "reference": [ms * speedup] * 4,
        "reference_first": [ms * first],
        "loops": loops,
    }
    return Evaluated(4.0, "", figures)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_kernel_is_named_after_a_problem_and_is_a_short_module_of_that_kind(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    methods = {node.name for node in classes["ModelNew"].body if isinstance(node, ast.FunctionDef)}
    assert re.fullmatch(r"L[1-4]_\d+_\w+", path.stem)
    assert "forward" in methods and ast.get_docstring(tree) and len(text.splitlines()) < 80
    marks = {"triton": "@triton.jit", "cuda": "load_inline(", "torch": "import"}
    assert marks[path.parent.name] in text


def test_there_are_enough_kernels_of_each_kind_and_few_that_compile_for_long() -> None:
    kinds = [kernel.kind for kernel in selected([])]
    assert len(kinds) == len(FILES) >= 16
    assert kinds.count("triton") >= 8 and kinds.count("torch") >= 6 and kinds.count("cuda") == 2


def test_words_select_kernels_by_kind_or_problem() -> None:
    assert {kernel.kind for kernel in selected(["cuda/"])} == {"cuda"}
    assert [kernel.key for kernel in selected(["L3_4"])] == ["torch/L3_4_LeNet5"]


def test_a_problem_comes_from_the_folder_before_the_checkout(tmp_path: Path) -> None:
    official = tmp_path / "KernelBench/level1/26_GELU_.py"
    official.parent.mkdir(parents=True)
    official.touch()
    assert problem_file("L1_26_GELU_", tmp_path, tmp_path / "none") == official
    (tmp_path / "L1_26_GELU_.py").touch()
    assert problem_file("L1_26_GELU_", tmp_path, tmp_path) == tmp_path / "L1_26_GELU_.py"
    with pytest.raises(FileNotFoundError, match="19_ReLU"):
        problem_file("L1_19_ReLU", tmp_path, None)


def test_results_are_read_back_from_the_file(tmp_path: Path) -> None:
    kernel = Kernel(KERNELS / "torch" / "L3_4_LeNet5.py")
    Results(tmp_path / "out.json").keep(kernel, ours(1.5, 1.4))
    Results(tmp_path / "out.json").keep(kernel, run(1.5, 1.5))
    again = Results(tmp_path / "out.json")
    assert again.ours(kernel) == ours(1.5, 1.4) and again.runs(kernel) == [run(1.5, 1.5)]


@pytest.mark.parametrize(
    ("mine", "runs", "rule"),
    [
        (ours(1.52, 1.5), [run(1.5, 1.0), run(1.5, 1.0)], AGREES),
        (ours(1.6, 1.6), [run(1.5, 1.0), run(1.5, 1.0)], UNEXPLAINED),
        (ours(1.6, 1.6), [run(1.5, 1.6), run(1.5, 1.6)], UNEXPLAINED),
        (ours(1.6, 1.6), [run(1.5, 1.0), run(1.62, 1.0)], AGREES),
        (ours(1.6, 1.6), [run(1.48, 1.0), run(1.6, 1.0)], "their_scatter"),
        (ours(1.6, 1.6), [run(1.0, 1.0), run(1.6, 1.0)], UNEXPLAINED),
        (ours(1.6, 1.6), [run(1.2, 1.0), run(1.3, 1.0)], UNEXPLAINED),
        (ours(1.6, 1.6), [run(1.5, 1.0, first=1.6), run(1.5, 1.0, first=1.61)], "their_order"),
        (ours(1.6, 1.6, half=0.04), [run(1.55, 1.0), run(1.55, 1.0)], "our_interval"),
        (ours(1.6, 1.6, half=0.1), [run(1.5, 1.0), run(1.5, 1.0)], UNEXPLAINED),
        (ours(1.6, 1.2, (100, 300)), [run(1.2, 1.6), run(1.2, 1.6)], "device_time"),
        (ours(1.6, 1.2, (100, 300)), [run(1.2, 1.2), run(1.2, 1.2)], UNEXPLAINED),
        (ours(1.6, 1.2, (100, 300)), [run(1.4, 1.6, ms=0.25), run(1.4, 1.6, ms=0.25)], "host_bound"),
        (ours(1.6, 1.2, (100, 300)), [run(1.4, 1.6, ms=0.9), run(1.4, 1.6, ms=0.9)], UNEXPLAINED),
        (ours(1.6, 1.6), [run(1.4, 1.6, grad=1.4), run(1.4, 1.6, grad=1.4)], "autograd"),
        (ours(2.0, 2.0, (20, 21)), [run(60 / 40, 2.0, ms=0.04), run(60 / 40, 2.0, ms=0.04)], "trial_cost"),
        (ours(2.0, 2.0, (20, 21)), [run(1.5, 2.0, ms=0.08), run(1.5, 2.0, ms=0.08)], UNEXPLAINED),
    ],
)  # fmt: skip
def test_only_a_reason_that_the_figures_reproduce_explains_a_difference(
    mine: Ours, runs: list[Evaluated], rule: str
) -> None:
    assert explained(mine, runs).rule == rule
    assert explained(mine, runs).is_explained == (rule != UNEXPLAINED)


def test_their_outliers_explain_a_difference_that_their_medians_do_not_have() -> None:
    strayed = run(1.6, 1.0)
    strayed.figures["candidate"] = [1.0, 1.0, 1.0, 2.0]
    assert explained(ours(1.6, 1.6), [strayed, strayed]).rule == "their_outliers"


def test_a_kernel_that_either_side_refuses_is_not_explained() -> None:
    refused = explained(Ours("incorrect", 5.0, ["wrong in a timed call"]), [run(1.0, 1.0)])
    failed = explained(ours(1.0, 1.0), [run(1.0, 1.0), Evaluated(4.0, "exit code 1: out of memory")])
    assert (refused.rule, failed.rule) == (NOT_COMPARED, NOT_COMPARED)
    assert "wrong in a timed call" in refused.words and "out of memory" in failed.words
    assert not refused.is_explained and not failed.is_explained


@pytest.mark.parametrize(("candidate", "error"), [("fine", ""), ("wrong", "not evaluated")])
def test_times_of_all_trials_come_back_from_a_process_that_imports_the_checkout(
    tmp_path: Path, candidate: str, error: str
) -> None:
    package = tmp_path / "src/kernelbench"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("eval", FAKE_EVALUATION), ("timing", FAKE_TIMING)):
        (package / f"{name}.py").write_text(text)
    found = evaluate_in_process(tmp_path, "reference", candidate, "triton", tmp_path, look=False)
    assert error in found.error and bool(found.error) == bool(error)
    assert found.figures == ({} if error else {"candidate": [4.0] * 100, "reference": [9.0] * 100})
