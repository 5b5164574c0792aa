"""Test `manage.py problems`, which stores problems of every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.models import Problem, ProblemVersion
from runners.problems import commands
from runners.problems.signature import FILE as SIGNATURE_FILE
from tests.examined import examine_once
from tests.factories import make_user

pytestmark = pytest.mark.django_db

MODEL = '''
import torch


class Model(torch.nn.Module):
    """Doubles what it gets."""

    def forward(self, x):
        return x * 2


size = 1 << 12


def get_inputs():
    return [torch.rand(size)]


def get_init_inputs():
    return []
'''
# Its first output says nothing of the input, and its second is drawn at random: one run of it shows two findings.
BLIND = MODEL.replace("return x * 2", "return x * 0 + 3, x + torch.rand_like(x)")
TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
lang: py
description: Double a vector.
tests: [{size: 16, seed: 1}]
benchmarks: [{size: 32, seed: 2}]
"""
REFERENCE = """
import torch
def generate_input(size, seed):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))
def ref_kernel(data):
    return data * 2
def check_implementation(data, output):
    return "" if torch.allclose(output, ref_kernel(data)) else "differs"
"""


@pytest.fixture(autouse=True)
def _examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the reference of a problem that several tests import once in the process."""
    monkeypatch.setattr(commands, "examine", examine_once)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write a KernelBench level and a GPU MODE task."""
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Double.py").write_text(MODEL)
    write_task(tmp_path / "set" / "double_py")
    return tmp_path


def write_task(folder: Path, task: str = TASK) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(task)
    (folder / "reference.py").write_text(REFERENCE)
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def newest(slug: str) -> ProblemVersion:
    return Problem.objects.get(slug=slug).latest()


def test_every_problem_below_a_directory_is_imported(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("problems", "import", str(files))
    assert "2 of 2 imported, 2 new versions" in said(capsys)
    assert {v.bundle["format"] for v in ProblemVersion.objects.all()} == {"kernelbench", "gpumode"}
    assert newest("1_double").warnings == [] and newest("double_py").description.startswith("Double a vector.")
    assert Problem.objects.get(slug="1_double").origin == str(files / "level1" / "1_Double.py")


def test_importing_again_adds_nothing_and_a_changed_file_becomes_a_version(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("problems", "import", "--no-run", str(files))
    call_command("problems", "import", "--no-run", str(files))
    assert "2 of 2 imported, 0 new versions" in said(capsys)
    (files / "level1" / "1_Double.py").write_text(MODEL.replace("1 << 12", "1 << 13"))
    call_command("problems", "import", "--no-run", str(files))
    assert newest("1_double").number == 2 and newest("double_py").number == 1


def test_an_import_that_runs_the_model_stores_its_c_signature_and_one_that_does_not_keeps_it(files: Path) -> None:
    level = files / "level1"
    call_command("problems", "import", str(level))
    version = newest("1_double")
    assert SIGNATURE_FILE in version.bundle["files"]
    assert {"cpp", "cuda", "hip", "python", "triton"} == set(version.languages)
    call_command("problems", "import", "--no-run", str(level))
    assert newest("1_double") == version


def test_why_there_is_no_c_signature_is_kept_with_the_version(files: Path) -> None:
    (files / "level1" / "1_Double.py").write_text(BLIND)
    call_command("problems", "import", str(files / "level1"))
    version = newest("1_double")
    assert any("No kernels in C++, HIP or CUDA: The reference draws random" in text for text in version.warnings)
    assert set(version.languages) == {"python", "triton"}


def test_what_the_filters_notice_is_kept_and_shown(files: Path, client: Client) -> None:
    (files / "level1" / "1_Double.py").write_text(BLIND)
    call_command("problems", "import", str(files / "level1"))
    warnings = newest("1_double").warnings
    assert any("the same whatever the inputs are" in warning for warning in warnings)
    client.force_login(make_user())
    page = client.get(reverse("problem_page", args=["1_double"])).content.decode()
    assert "the same whatever the inputs are" in page


def test_a_reference_that_does_not_run_here_is_imported_with_the_reason(files: Path) -> None:
    (files / "level1" / "1_Double.py").write_text(MODEL.replace("x * 2", "x.no_such_thing()"))
    call_command("problems", "import", str(files / "level1"))
    assert "does not run on cpu: AttributeError" in newest("1_double").warnings[0]


def test_namesakes_from_elsewhere_are_told_apart_by_their_folder(files: Path) -> None:
    write_task(files / "other_set" / "double_py")
    do_sync_shipped_problems()
    softmax = (files / "level1" / "1_Double.py").rename(files / "level1" / "softmax_rows.py")
    call_command("problems", "import", "--no-run", str(files))
    slugs = set(Problem.objects.exclude(origin="shipped").values_list("slug", flat=True))
    assert slugs == {"double_py", "set-double_py", "level1-softmax_rows"}
    assert newest("softmax_rows").bundle["format"] == "native" and softmax.exists()


def test_file_names_that_are_no_addresses_get_one(files: Path, client: Client) -> None:
    (files / "level1" / "1_Double.py").rename(files / "level1" / "2 Größen & mehr.py")
    call_command("problems", "import", "--no-run", str(files / "level1"))
    (problem,) = Problem.objects.all()
    client.force_login(make_user())
    assert client.get(reverse("problem_page", args=[problem.slug])).status_code == 200


def test_a_malformed_directory_is_named_file_by_file_and_the_rest_is_imported(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    native = files / "broken"
    native.mkdir()
    (native / "problem.toml").write_text('format = 1\nname = "broken"\nreference = "nowhere.py"\n')
    write_task(files / "cyclic_py", "files: &f [*f]\n")
    (files / "level1" / "2_Half.py").write_text(MODEL.replace("    return [torch", "    return (torch"))
    with pytest.raises(CommandError, match="3 problems cannot be read"):
        call_command("problems", "import", "--no-run", str(files))
    text = said(capsys)
    assert "broken: problem.toml.title: missing" in text and "nowhere.py" in text
    assert "cyclic_py: task.yml: line 1: aliases are not read" in text
    assert "level1/2_Half.py: 2_Half.py: line" in text
    assert Problem.objects.count() == 2


def test_a_path_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError):
        call_command("problems", "import", "/no/such/place")
    assert "/no/such/place: neither a shipped problem" in said(capsys)


def test_checking_stores_nothing(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("problems", "check", str(files))
    assert "all: 2 of 2 read" in said(capsys) and not Problem.objects.exists()


def test_the_list_tells_versions_formats_and_warnings(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("problems", "import", "--no-run", str(files))
    said(capsys)
    call_command("problems", "list")
    lines = said(capsys).splitlines()
    assert len(lines) == 2 and "kernelbench" in lines[0] and "v1" in lines[0] and "1 warning " in lines[0]
