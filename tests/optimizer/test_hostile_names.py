"""Test names of files that come from outside: what is imported under them, shown of them and downloaded as them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from optimizer.models import Kernel, Problem, ProblemVersion, Run, Team
from optimizer.reports.files import as_attachment
from tests.factories import drive, make_run
from tests.optimizer.test_problem_import import MODEL

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "../../etc/passwd",
    'a"; filename="evil.exe',
    "kernel\u202egpj.exe",
    "two\r\nSet-Cookie: session=mine",
    "nul\x00byte",
    ".ssh",
    "`rm -rf ~`$(id)",
    "Größe",
)
SAFE = re.compile(r'attachment; filename="[A-Za-z0-9_-][A-Za-z0-9._-]*"')


@pytest.mark.parametrize("name", HOSTILE)
def test_a_download_has_a_name_that_no_header_and_no_file_system_stumbles_over(name: str) -> None:
    assert SAFE.fullmatch(as_attachment("text", f"{name}.txt", "text/plain")["Content-Disposition"])


@pytest.mark.parametrize("name", HOSTILE[:5])
def test_every_download_of_a_problem_with_a_hostile_name_has_a_harmless_one(
    pages: Client, team: Team, name: str
) -> None:
    run = drive(make_run(team), rounds=1)
    number = Kernel.objects.filter(run=run).latest("number").number
    Problem.objects.filter(versions__runs=run).update(slug=name.replace("\x00", ""), title=name.replace("\x00", ""))
    downloads = [
        reverse("kernel_download", args=[run.pk, number]),
        reverse("kernel_submission", args=[run.pk, number, "native"]),
        reverse("kernel_patch", args=[run.pk, number]),
        reverse("run_report", args=[run.pk, "html"]),
        reverse("runs_csv"),
    ]
    for address in downloads:
        answer = pages.get(address)
        assert answer.status_code == 200, address
        assert SAFE.fullmatch(answer["Content-Disposition"]), address
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("name", [SCRIPT.replace("/", ""), "kernel\u202egpj.exe"])
def test_a_problem_file_with_a_hostile_name_is_imported_under_a_harmless_one_and_shown_as_text(
    pages: Client, run: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / f"7_{name}.py").write_text(MODEL)
    call_command("problems", "import", "--no-run", str(tmp_path / f"7_{name}.py"))
    version = ProblemVersion.objects.latest("pk")
    assert re.fullmatch(r"[a-z0-9_-]+", version.problem.slug)
    for address in (reverse("problems"), reverse("problem_page", args=[version.problem.slug])):
        shown = pages.get(address).content.decode()
        assert "<script>alert" not in shown and "\u202e" not in shown


def test_file_names_in_a_compilers_log_are_text(pages: Client, team: Team) -> None:
    run = drive(make_run(team), rounds=1)
    evaluation = Kernel.objects.filter(run=run).latest("number").evaluation
    evaluation.result["build"] = {
        "ok": False, "seconds": 1.0, "cached": False, "log": f"../../{SCRIPT}\u202e.cpp:1:2: error: no {SCRIPT}\n",
    }  # fmt: skip
    evaluation.save()
    shown = pages.get(reverse("kernel_page", args=[run.pk, evaluation.kernel.number])).content.decode()
    assert "&lt;script&gt;" in shown and SCRIPT not in shown
