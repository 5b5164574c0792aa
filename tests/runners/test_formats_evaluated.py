"""Test KernelBench files and GPU MODE directories, as they lie on disk, through the whole harness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runners.__main__ import main
from runners.harness import evaluate
from runners.harness.comparison import PLANS
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.plan import FULL
from runners.job import Baseline, Effort, JobResult, JobSpec, Language, Limits, Source, Status, Verdict
from runners.problems import load, open_bundle
from runners.wire import loads

pytestmark = [pytest.mark.split, pytest.mark.usefixtures("one_torch_for_all_problems")]
LIMITS = Limits(call_s=20.0, total_s=200.0)
# Each evaluation imports torch in its candidate's process: what takes the same way through the harness as its neighbour
# is left to the long form.
ALIKE = pytest.mark.long

MODEL = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer and an activation whose slope is an argument of the constructor."""

    def __init__(self, in_features, out_features, slopes):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.slope = slopes[0]

    def forward(self, x, shift):
        return nn.functional.leaky_relu(self.linear(x), self.slope) + shift


batch_size, in_features = 8, 64
out_features = 32


def get_inputs():
    return [torch.rand(batch_size, in_features), 3]


def get_init_inputs():
    return [in_features, out_features, [0.25]]
'''
NEW = MODEL.replace("Model", "ModelNew")
FUSED = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, in_features, out_features, slopes):
        super().__init__()
        self.inner = torch.nn.Linear(in_features, out_features)
        self.slope = slopes[0]

    def forward(self, x, shift):
        y = torch.addmm(self.inner.bias, x, self.inner.weight.t())
        return torch.where(y > 0, y, self.slope * y) + shift
"""
# What draws a random number in each row of its output, in place of `+ shift`.
DRAWS = "* torch.rand_like(x[:, :1]) + shift"

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: helpers.py, source: helpers.py}
  - {name: reference.py, source: reference.py}
lang: py
description: Scale the parts of a batch, sum them into a buffer that is passed in.
tests: [{rows: 8, cols: 64, seed: 7}, {rows: 16, cols: 64, seed: 8}]
benchmarks: [{rows: 64, cols: 512, seed: 9}]
"""
TASK_PY = "from typing import NamedTuple\n\n\nclass Options(NamedTuple):\n    scale: float\n    label: str\n"
REFERENCE = """
import torch
from helpers import scaled
from task import Options


def generate_input(rows, cols, seed):
    made = torch.Generator(device="cuda").manual_seed(seed)
    parts = [torch.randn(rows, cols, device="cuda", generator=made) for _ in range(2)]
    return {"parts": parts, "options": {"scale": 0.5, "label": None}}, torch.zeros(rows, cols, device="cuda")


def ref_kernel(data):
    config, total = data
    total[...] = scaled(config["parts"][0], config) + scaled(config["parts"][1], config)
    return total, (total.amax(1), total.to(torch.int32))


def check_implementation(data, output):
    wanted, (top, whole) = ref_kernel(data)
    got, (their_top, their_whole) = output
    close = torch.allclose(got, wanted) and torch.allclose(top, their_top)
    return "" if close and torch.equal(whole, their_whole) else "parts differ"
"""
HELPERS = "def scaled(part, config):\n    return part * config['options']['scale']\n"
KERNEL = """
from helpers import scaled
from task import Options


def custom_kernel(data):
    config, total = data
    assert isinstance(config["parts"], list) and config["options"]["label"] is None
    one, two = config["parts"]
    total.copy_(one).add_(two).mul_(0.5)
    return total, (total.max(1).values, total.int())
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return written(tmp_path / "1_Linear.py", MODEL)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    for name, text in {
        "task.yml": TASK,
        "task.py": TASK_PY,
        "reference.py": REFERENCE,
        "helpers.py": HELPERS,
    }.items():
        written(tmp_path / "sum_py" / name, text)
    return tmp_path / "sum_py"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def outcome(
    problem: Path, text: str, effort: Effort = Effort.QUICK, *, baseline: Baseline = Baseline.EAGER
) -> JobResult:
    source = Source(Language.PYTHON, text)
    return evaluate(JobSpec("job", load(problem), "cpu", source, effort, baseline, limits=LIMITS))


def assert_accepted(result: JobResult) -> None:
    """Assert that the candidate is correct. That it is not faster than itself takes a quiet machine: see the test that
    is marked so."""
    assert result.status in (Status.CORRECT, Status.SUSPECT), result.reasons
    assert all("clock" in reason for reason in result.reasons), result.reasons
    assert result.cases and all(case.ok or case.candidate_us for case in result.cases)
    assert "baseline_disagrees" not in result.flags


def assert_refused(result: JobResult, status: Status, said: str) -> None:
    """Assert that it ended like that, without a verdict, and that one of the reasons says so."""
    assert (result.status, result.verdict) == (status, None)
    assert said in " ".join(result.reasons)


@pytest.mark.evaluates
@ALIKE
def test_a_model_equal_to_the_reference_is_correct(model: Path) -> None:
    assert_accepted(outcome(model, NEW))


@pytest.mark.evaluates
def test_a_model_with_other_parameter_names_gets_the_same_weights_from_the_seed_and_draws_the_same_numbers(
    tmp_path: Path,
) -> None:
    problem = written(tmp_path / "2_Random.py", MODEL.replace("+ shift", DRAWS))
    assert_accepted(outcome(problem, FUSED.replace("+ shift", DRAWS)))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        pytest.param(NEW.replace("self.slope)", "0.2)"), Status.INCORRECT, "elements wrong", marks=ALIKE),
        pytest.param(NEW.replace("+ shift", "+ 2"), Status.INCORRECT, "elements wrong", marks=ALIKE),
        (NEW.replace("+ shift", "+ shift, x"), Status.INCORRECT, "expected 1 tensor(s), got tuple of 2"),
        (NEW.replace("slopes):", "):"), Status.CRASHED, "positional arguments"),
        pytest.param("class ModelNew:\n    pass\n", Status.CRASHED, "TypeError", marks=ALIKE),
    ],
)
def test_a_wrong_model_is_refused_with_the_reason(model: Path, text: str, status: Status, said: str) -> None:
    assert_refused(outcome(model, text), status, said)


# Without this torch compiles a dozen small programs to find out which vector instructions the processor has, and a
# kernel with headers for them: a quarter of a minute.
PLAIN_LOOPS = "import torch._inductor.config\ntorch._inductor.config.cpp.vec_isa_ok = False\n"


@pytest.mark.long
@pytest.mark.evaluates
def test_a_model_is_compared_with_its_compiled_reference(model: Path) -> None:
    # In the style of Python 2, as most of KernelBench: the class is renamed, and its own `super` must still find it.
    model.write_text(PLAIN_LOOPS + MODEL.replace("super().__init__()", "super(Model, self).__init__()"))
    result = outcome(model, NEW, baseline=Baseline.COMPILE)
    assert_accepted(result)
    assert result.speedup is not None and result.speedup.baseline == "torch_compile"


@pytest.mark.processes
def test_a_model_that_cannot_be_built_is_the_problems_fault(tmp_path: Path) -> None:
    broken = written(tmp_path / "3_Broken.py", MODEL.replace("super().__init__()", "raise OSError('no such data')"))
    result = outcome(broken, NEW)
    assert result.status is Status.INFRA_ERROR and "no such data" in result.reasons[0]


HEAD = '"""A task."""\nfrom __future__ import annotations\n'


@pytest.mark.evaluates
def test_a_task_with_nested_inputs_outputs_and_a_buffer_to_write_to_is_evaluated(task: Path) -> None:
    """Its reference, which is its seed too, is written for a GPU and runs beside the kernel."""
    written(task / "reference.py", HEAD + for_a_gpu(REFERENCE))
    problem = open_bundle(load(task))
    assert [seed.source for seed in problem.seeds] == [baseline_source(problem, Baseline.EAGER, "cpu")]
    result = outcome(task, KERNEL)
    assert_accepted(result)
    assert result.speedup is not None and not result.failures


def for_a_gpu(reference: str) -> str:
    """Return a reference that computes on "cuda"."""
    return reference.replace(
        "    total[...] =", "    assert torch.ones(1, device='cuda').sum() == 1\n    total[...] ="
    )


@pytest.mark.evaluates
@ALIKE
@pytest.mark.parametrize("head", ["", HEAD])
def test_the_seed_of_a_task_written_for_a_gpu_runs_here(task: Path, head: str) -> None:
    written(task / "reference.py", head + for_a_gpu(REFERENCE))
    (seed,) = open_bundle(load(task)).seeds
    assert_accepted(outcome(task, seed.source.text))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        pytest.param(KERNEL.replace("mul_(0.5)", "mul_(0.51)"), Status.INCORRECT, "parts differ", marks=ALIKE),
        pytest.param(
            KERNEL.replace("total.int()", "total.int() + 1"), Status.INCORRECT, "parts differ", marks=ALIKE
        ),
        pytest.param(
            KERNEL.replace("return total,", "return [total * float('nan')],"),
            Status.INCORRECT,
            "parts differ",
            marks=ALIKE,
        ),
        pytest.param(KERNEL.replace(", total.int())", ")"), Status.INCORRECT, "expected 3 tensor(s)", marks=ALIKE),
        (KERNEL.replace("    total.copy_", "    one.zero_()\n    total.copy_"), Status.INCORRECT, "0.parts.0"),
        (KERNEL.replace("from task", "import reference\nfrom task"), Status.CRASHED, "No module named 'reference'"),
    ],
)
def test_a_wrong_kernel_is_refused_with_the_tasks_word_or_ours(
    task: Path, text: str, status: Status, said: str
) -> None:
    assert_refused(outcome(task, text), status, said)


@pytest.mark.processes
def test_numbers_that_are_none_are_refused_even_where_the_task_lets_them_pass(task: Path) -> None:
    written(task / "reference.py", REFERENCE.replace('"" if close', '"" if True or close'))
    result = outcome(task, KERNEL.replace("return total,", "return total * float('nan'),"))
    assert result.status is Status.INCORRECT and "NaN" in " ".join(result.reasons)


LATE = """
class Late(list):
    def __iter__(self):
        self[0].copy_(self.right)
        return super().__iter__()


def custom_kernel(data):
    right, others = in_time(data)
    late = Late([right * 0, others])
    late.right = right
    return late
"""


@pytest.mark.processes
def test_a_list_that_computes_when_it_is_read_is_not_asked(task: Path) -> None:
    """Reject a list that computes while the outputs are fetched, which is not part of the timed call."""
    result = outcome(task, KERNEL.replace("custom_kernel", "in_time") + LATE)
    assert result.status is Status.INCORRECT and "parts differ" in " ".join(result.reasons)


@pytest.mark.processes
def test_a_task_that_cannot_be_evaluated_here_is_refused_with_the_reason(task: Path) -> None:
    written(task / "task.yml", TASK + "multi_gpu: true\n")
    result = outcome(task, KERNEL)
    assert result.status is Status.REJECTED and "several GPUs" in result.reasons[0]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("object()", "a object cannot be sent to a candidate"),
        pytest.param("torch.zeros(2, dtype=torch.complex64)", "a tensor of complex64 cannot be sent", marks=ALIKE),
        ("torch.zeros(seed % 97 + 1)", "differ from seed to seed"),
    ],
)
def test_inputs_that_do_not_travel_are_named(task: Path, made: str, said: str) -> None:
    written(task / "reference.py", REFERENCE.replace('"label": None', f'"label": {made}'))
    result = outcome(task, KERNEL, Effort.FULL)
    assert result.status is Status.REJECTED and said in result.reasons[0], result.reasons


@pytest.mark.processes
def test_the_command_takes_files_and_directories_as_they_lie(
    model: Path, task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong_model, wrong_kernel = NEW.replace("+ shift", ""), KERNEL.replace("0.5", "0.25")
    for problem, text, said in ((model, wrong_model, "elements wrong"), (task, wrong_kernel, "parts differ")):
        candidate = written(tmp_path / "kernel.py", text)
        code = main(["evaluate", "--problem", str(problem), "--candidate", str(candidate), "--quick", "--json"])
        result = loads(JobResult, capsys.readouterr().out)
        assert code == 0
        assert_refused(result, Status.INCORRECT, said)


@pytest.mark.evaluates
@pytest.mark.timing
@pytest.mark.parametrize("kind", [pytest.param("model", marks=ALIKE), "task"])
def test_a_reference_is_neither_faster_nor_slower_than_itself(
    model: Path, task: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of a format around a call happens before the clock starts.

    Two sessions show it; where they claim a small difference, two more are added, as after three.
    """
    monkeypatch.setitem(PLANS, Effort.FULL, replace(FULL, sessions=2))
    kernel = REFERENCE.replace('"cuda"', '"cpu"') + "\ncustom_kernel = ref_kernel\n"
    problem, text = (model, NEW) if kind == "model" else (task, kernel)
    result = outcome(problem, text, Effort.FULL)
    assert result.status is Status.CORRECT, result.reasons
    assert result.verdict is Verdict.SAME, result.speedup
