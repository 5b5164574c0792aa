"""Test the doctor: what it finds, and what it says about what is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.core.management import call_command

from kernelsci_site.management.commands import doctor as command
from optimizer.job_source import DatabaseJobSource
from runners import doctor
from runners.job_source import RunnerCard


def test_a_missing_compiler_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KERNELSCI_CXX", raising=False)
    assert "install g++" in (doctor.missing_compiler() or "")
    text = doctor.as_text(doctor.facts())
    assert "✗ C++ (CPU kernels)" in text
    assert "apt-get install g++" in text


@pytest.mark.parametrize(("level", "mark"), [("candidate", "– python"), ("final", "✓ python")])
def test_a_pre_release_of_python_is_told_from_a_released_one(
    monkeypatch: pytest.MonkeyPatch, level: str, mark: str
) -> None:
    monkeypatch.setattr(sys, "version_info", SimpleNamespace(releaselevel=level))
    text = doctor.as_text([doctor._python()])
    assert mark in text and ("make start PYTHON=…" in text) == (level == "candidate")


@pytest.mark.parametrize(("number", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950")])
def test_the_drivers_number_becomes_the_compilers_name(number: int, name: str) -> None:
    assert doctor.gfx_name(number) == name


def test_an_amd_gpu_is_found_without_rocm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for node, version in (("0", 0), ("1", 90402), ("2", 90402)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\n")
    monkeypatch.setattr(doctor, "KFD_NODES", tmp_path)
    monkeypatch.setattr(doctor, "_nvidia_gpus", lambda: [])
    assert doctor.local_targets() == ["cpu", "gfx942"]


def test_an_nvidia_gpu_is_found_under_the_target_of_its_product(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "9.0, NVIDIA H200\n9.0, NVIDIA H100 80GB HBM3\n9.0, NVIDIA GH200 480GB\n8.6, NVIDIA A10\n"
    monkeypatch.setattr(doctor, "answer_of", lambda _command, _within_s: answer)
    monkeypatch.setattr(doctor, "KFD_NODES", Path("/nonexistent"))
    assert doctor.local_targets() == ["cpu", "sm_90-h200", "sm_90", "sm_86"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="says that g++ is missing, as the test above wants it")
def test_a_machine_without_database_can_ask_too() -> None:
    command = [sys.executable, "-m", "runners", "doctor", "--json"]
    done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60)
    names = {fact["name"] for fact in json.loads(done.stdout)["facts"]}
    assert {"python", "cpu", "C++ (CPU kernels)", "torch"} <= names


@pytest.mark.django_db
def test_running_servers_are_reported_with_their_version() -> None:
    out = StringIO()
    call_command("doctor", "--json", stdout=out)
    facts = {fact["name"]: fact for fact in json.loads(out.getvalue())["facts"]}
    assert facts["PostgreSQL"]["ok"]
    assert "answers as" in facts["Redis"]["detail"]
    assert facts["supervisor"]["ok"] is False


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("access", "database", "ok", "words"),
    [
        ("database", "postgresql://u:p@h/n", False, "password of the whole database"),
        ("database", "", True, "the site's own user"),
        ("token", "postgresql://u:p@h/n", True, "by token"),
        (None, "", True, "by a spool"),
    ],
)
def test_worker_with_more_rights_than_it_needs_is_named(
    access: str | None, database: str, ok: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    DatabaseJobSource().check_in(RunnerCard("bench@box", "cpu", ("bench.cpu",), facts={"access": access}))
    monkeypatch.setattr(settings, "DATABASE_URL", database)
    (fact,) = command._workers()
    assert (fact.name, fact.ok) == ("bench@box", ok) and words in fact.detail
    assert bool(fact.remedy) != ok
