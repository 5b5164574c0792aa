"""Test GPU MODE task directories: reading, hostile YAML, and the task's own check."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from runners.problems import find, load, open_bundle
from runners.problems.base import ProblemError, Purpose
from runners.problems.gpumode import GpuModeProblem
from runners.problems.gpumode_task import load_yaml
from runners.problems.structure import positional

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: helpers.py, source: ../helpers.py}
  - {name: reference.py, source: reference.py}
lang: py
description: |
  Add a constant to a vector.
config: {main: eval.py}
templates: {Python: ../template.py}
tests:
  - {size: 64, plus: 1.5, seed: 7}
  - {size: 8, plus: 2.0, seed: 8}
benchmarks:
  - {size: 4096, plus: 0.5, seed: 9}
ranking_by: geom
test_timeout: 60
"""

REFERENCE = """
import torch
from task import Data
from helpers import close


def generate_input(size: int, plus: float, seed: int) -> Data:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    return torch.randn(size, device="cuda", generator=generator), {"plus": plus}


def ref_kernel(data):
    x, options = data
    return x + options["plus"]


def check_implementation(data, output):
    return close(output, ref_kernel(data))
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Write a task directory of our own, with shared files one level up."""
    root = tmp_path / "set" / "add_py"
    root.mkdir(parents=True)
    (root / "task.yml").write_text(TASK)
    (root / "task.py").write_text("Data = tuple\n")
    (root / "reference.py").write_text(REFERENCE)
    (root.parent / "helpers.py").write_text(
        "def close(a, b):\n    return (True, '') if abs(a - b).max() < 1e-5 else (False, 'too far')\n"
    )
    (root.parent / "template.py").write_text("def custom_kernel(data):\n    pass\n")
    return root


def opened(path: Path) -> GpuModeProblem:
    problem = open_bundle(load(path))
    assert isinstance(problem, GpuModeProblem)
    return problem


def complaints_of(task: Path) -> str:
    with pytest.raises(ProblemError) as caught:
        load(task)
    return "\n".join(caught.value.complaints)


def test_a_task_is_read_with_its_cases(task: Path) -> None:
    problem = opened(task)
    assert (problem.name, problem.ranking_by, problem.obstacles) == ("add_py", "geom", ())
    assert [c.sizes for c in problem.cases("gfx942", Purpose.TEST)] == [
        {"size": 8, "plus": 2.0},
        {"size": 64, "plus": 1.5},
    ]
    assert [c.sizes["size"] for c in problem.cases("gfx942", Purpose.BENCHMARK)] == [4096]


def test_a_directory_without_its_task_file_is_found_and_says_so(task: Path) -> None:
    (task / "task.yml").unlink()
    assert list(find(task.parent)) == [task]
    assert complaints_of(task) == "task.yml: no such file"


def test_on_a_cpu_tests_stand_in_for_benchmarks_and_say_so(task: Path) -> None:
    cases = opened(task).cases("cpu", Purpose.BENCHMARK)
    assert [c.sizes["size"] for c in cases] == [8, 64] and all("stand in" in c.reduced for c in cases)


def test_the_bundle_runs_without_yaml_or_the_directory(task: Path) -> None:
    bundle = load(task)
    assert json.loads(bundle.files["task.json"])["ranking_by"] == "geom"
    assert "task.yml" not in bundle.files and "submission.py" not in bundle.files


def test_a_reference_written_for_a_gpu_runs_on_the_cpu(task: Path) -> None:
    problem = opened(task)
    case = problem.cases("cpu", Purpose.TEST)[0]
    inputs = problem.make_inputs(case, 3, "published")
    ((x, options),) = positional(inputs)
    assert options == {"plus": 2.0} and x.device.type == "cpu"
    assert torch.equal(problem.reference(inputs)[0], x + 2.0)


def test_the_secret_seed_replaces_the_published_one(task: Path) -> None:
    problem = opened(task)
    case = problem.cases("cpu", Purpose.TEST)[0]
    one, same, other = (problem.make_inputs(case, seed, "published").values["0.0"] for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_the_tasks_own_check_decides(task: Path) -> None:
    problem = opened(task)
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 3, "published")
    expected = problem.expected(inputs)
    assert problem.compare(inputs, expected, expected) == ""
    assert problem.compare(inputs, [expected[0] + 1], expected) == "too far"


def test_a_candidate_may_import_what_submissions_import_but_not_the_reference(task: Path) -> None:
    problem = opened(task)
    assert set(problem.candidate_setup(problem.cases("cpu", Purpose.TEST)[0]).files) == {"task.py", "helpers.py"}


def test_running_a_task_leaves_no_module_behind(task: Path) -> None:
    before = {name: sys.modules.get(name) for name in ("task", "helpers", "reference")}
    problem = opened(task)
    problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 3, "published")
    assert {name: sys.modules.get(name) for name in before} == before


def test_an_input_that_cannot_travel_is_named(task: Path) -> None:
    returned = 'return torch.randn(size, device="cuda", generator=generator), {"plus": plus}'
    (task / "reference.py").write_text(REFERENCE.replace(returned, "return torch.nn.Linear(2, 2)"))
    problem = opened(task)
    with pytest.raises(ValueError, match="a Linear cannot be sent"):
        problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 3, "published")


def test_a_task_for_several_gpus_is_read_and_says_why_it_cannot_run(task: Path) -> None:
    (task / "task.yml").write_text(TASK + "multi_gpu: true\n")
    assert opened(task).obstacles == ("the task runs on several GPUs at once",)


def test_a_reference_without_ref_kernel_is_an_obstacle(task: Path) -> None:
    (task / "reference.py").write_text(REFERENCE.replace("def ref_kernel", "def other"))
    assert opened(task).obstacles == ("reference.py defines no ref_kernel",)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("ranking_by: geom", "ranking_by: fastest", "'fastest' is not one of"),
        ("lang: py", "lang: cobol", "'cobol' is not one of"),
        ("tests:", "trials:", "task.yml.tests: missing"),
        ("source: task.py", "source: missing.py", "missing.py: no such file"),
        ("source: task.py", "source: /etc/passwd", "not a source file near"),
        ("source: task.py", "source: ../../../../secret.py", "not a source file near"),
        ("source: task.py", "source: ../../.ssh/id_rsa", "not a source file near"),
        ("name: task.py", "name: ../task.py", "not a plain file name"),
        ("name: task.py", "name: task.json", "not a plain file name"),
        ("{name: reference.py, source: reference.py}", "{name: ref.py, source: reference.py}", "no reference.py"),
        ("{size: 64, plus: 1.5, seed: 7}", "{size: {a: 1}}", "expected a number"),
        ("{size: 64, plus: 1.5, seed: 7}", "{size: 2020-01-01}", "expected a number"),
        ("{size: 64, plus: 1.5, seed: 7}", "just text", "expected a table"),
        ("lang: py", "lang: !!python/object/apply:os.system ['true']", "not YAML that we read"),
        ("lang: py", "lang: [", "not YAML that we read"),
    ],
)
def test_a_fault_is_refused_and_named(task: Path, old: str, new: str, part: str) -> None:
    (task / "task.yml").write_text(TASK.replace(old, new))
    assert part in complaints_of(task)


def test_a_link_to_a_file_elsewhere_is_refused(task: Path) -> None:
    (task / "task.py").unlink()
    (task / "task.py").symlink_to("/etc/hostname")
    assert "leads away" in complaints_of(task) or "links are not followed" in complaints_of(task)


@pytest.mark.parametrize(
    "text",
    [
        "tests: &a [*a]",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]",
        "[" * 20000,
        "x: " + "a" * (70 << 10),
        "a: !!python/name:os.system",
        "? [a, b]\n: {",
        "a: \x00",
    ],
    ids=["cycle", "bomb", "depth", "size", "tag", "syntax", "control character"],
)
def test_hostile_yaml_is_refused_cleanly(text: str) -> None:
    with pytest.raises(ProblemError, match=r"task\.yml"):
        load_yaml(text)


def test_a_seed_beyond_what_float32_counts_is_brought_into_range(task: Path) -> None:
    counting = "generator.manual_seed(seed)\n    assert seed < 2**24"
    (task / "reference.py").write_text(REFERENCE.replace("generator.manual_seed(seed)", counting))
    problem = opened(task)
    problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 2**63 - 1, "published")
