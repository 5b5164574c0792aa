"""Test `python -m runners evaluate`: the exit codes and the JSON object that scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runners.harness import evaluate
from runners.job import JobSpec, Language, Source, Status
from runners.problems import load
from tests.runners import kernels
from tests.runners.command_line import command

ROOT = Path(__file__).parents[2]


def candidate(tmp_path: Path, text: str, name: str = "kernel.cpp") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


@pytest.mark.evaluates
def test_json_has_the_promised_keys_and_a_verdict_exits_zero(tmp_path: Path) -> None:
    words = ["--problem", "softmax_rows", "--candidate", candidate(tmp_path, kernels.HONEST), "--quick", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "runners", "evaluate", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    result = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    promised = {"status", "reasons", "speedup", "verdict", "cases", "stages", "sandbox", "environment"}
    assert promised <= set(result)
    assert {"median", "low", "high", "baseline"} <= set(result["speedup"])
    assert {"name", "ok", "error", "candidate_us", "baseline_us", "samples"} <= set(result["cases"][0])
    assert {"name", "seconds"} <= set(result["stages"][0])


@pytest.mark.processes
def test_kernel_that_does_not_compile_is_a_verdict_and_exits_zero(tmp_path: Path) -> None:
    text = candidate(tmp_path, kernels.DOES_NOT_COMPILE)
    done = command("evaluate", "--problem", "softmax_rows", "--candidate", text, "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "build_failed")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("problem", "name", "extra", "said"),
    [
        ("no_such_problem", "kernel.cpp", [], "no_such_problem"),
        ("softmax_rows", "kernel.txt", [], "suffix"),
        ("softmax_rows", "kernel.cpp", ["--tunable", "X"], "NAME=VALUE"),
        ("softmax_rows", "kernel.cpp", ["--target", "abacus"], "abacus"),
    ],
)
def test_wrong_usage_exits_two_and_says_what(
    tmp_path: Path, problem: str, name: str, extra: list[str], said: str
) -> None:
    done = command(
        "evaluate", "--problem", problem, "--candidate", candidate(tmp_path, kernels.HONEST, name), *extra
    )
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.processes
def test_missing_and_unreadable_candidates_exit_two(tmp_path: Path) -> None:
    assert (
        command("evaluate", "--problem", "softmax_rows", "--candidate", str(tmp_path / "none.cpp")).returncode == 2
    )
    (tmp_path / "latin.cpp").write_bytes(b"// \xff\xfe")
    done = command("evaluate", "--problem", "softmax_rows", "--candidate", str(tmp_path / "latin.cpp"))
    assert done.returncode == 2 and "UTF-8" in done.stderr


@pytest.mark.processes
def test_machine_without_a_compiler_is_the_harness_failing_and_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))
    done = command(
        "evaluate", "--problem", "softmax_rows", "--candidate", candidate(tmp_path, kernels.HONEST), "--json"
    )
    assert done.returncode == 1
    assert "g++" in json.loads(done.stdout)["reasons"][0]


@pytest.mark.processes
def test_a_candidate_of_ten_megabytes_is_refused_by_the_command_and_rejected_from_a_queue(tmp_path: Path) -> None:
    text = "// " + "x" * (10 << 20)
    done = command("evaluate", "--problem", "softmax_rows", "--candidate", candidate(tmp_path, text))
    assert done.returncode == 2 and "at most 1048576" in done.stderr
    result = evaluate(JobSpec("big", load("softmax_rows"), "cpu", Source(Language.CPP, text)))
    assert (result.status, [stage.name for stage in result.stages]) == (Status.REJECTED, ["screen"])
