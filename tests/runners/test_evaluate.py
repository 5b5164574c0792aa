"""Every way a kernel can end, through the whole harness."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from runners.harness import evaluate
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.environment import HARNESS_VERSION
from runners.job import (
    OTHERS_SHARE,
    Baseline,
    Effort,
    Flag,
    JobResult,
    JobSpec,
    Language,
    Limits,
    Source,
    Status,
)
from runners.problems import load, open_bundle
from runners.sandbox.meter import process_tree
from runners.sandbox.workspace import work_root
from runners.wire import dumps, loads
from tests.runners import kernels

pytestmark = pytest.mark.split
LIMITS = Limits(call_s=3.0, total_s=120.0, memory_bytes=1 << 30)


def outcome(text: str, *, language: Language = Language.CPP, **changes: object) -> JobResult:
    source = Source(language, text, changes.pop("tunables", {}), changes.pop("flags", ()))  # type: ignore[arg-type]
    settings: dict[str, object] = {"effort": Effort.QUICK, "limits": LIMITS, **changes}
    return evaluate(JobSpec("job", load("softmax_rows"), "cpu", source, **settings))  # type: ignore[arg-type]


def reason(result: JobResult) -> str:
    return " ".join(result.reasons)


@pytest.mark.evaluates
def test_honest_kernel_is_correct_with_times_errors_and_environment() -> None:
    result = outcome(kernels.HONEST)
    assert (result.status, result.reasons) == (Status.CORRECT, [])
    assert result.speedup is not None and result.speedup.low <= result.speedup.median <= result.speedup.high
    assert result.verdict is result.speedup.verdict
    timed = [case for case in result.cases if case.candidate_us is not None]
    assert timed and all(case.samples["candidate"] and case.baseline_us for case in timed)
    assert all(case.max_abs_error is not None for case in result.cases)
    assert [stage.name for stage in result.stages] == [
        "screen",
        "build",
        "smallest",
        "tests",
        "start",
        "quick timing",
    ]
    assert result.harness_version == HARNESS_VERSION and result.environment["torch"]
    assert 0.0 <= result.environment[OTHERS_SHARE] <= 1.0
    assert loads(JobResult, dumps(result)) == result


@pytest.mark.evaluates
def test_times_of_another_product_than_the_targets_carry_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.harness.evaluation.environment.describe_safely", lambda *_: {"gpu": "NVIDIA H200"})
    assert Flag.OTHER_PRODUCT in outcome(kernels.HONEST).flags
    # What was only built says nothing about a device.
    assert Flag.OTHER_PRODUCT not in outcome(kernels.HONEST, effort=Effort.BUILD).flags


@pytest.mark.processes
def test_a_binary_that_was_evaluated_already_is_built_and_not_executed() -> None:
    first = outcome(kernels.HONEST, effort=Effort.BUILD)
    assert first.build is not None and first.build.artefact_hash
    known = {first.build.artefact_hash: "evaluation 7"}
    again = outcome(f"{kernels.HONEST}\n// another comment\n", known_artefacts=known)
    assert (again.duplicate_of, again.status, again.cases) == ("evaluation 7", Status.CORRECT, [])
    assert [stage.name for stage in again.stages] == ["screen", "build"]
    assert "not_executed" in again.flags and again.verdict is None
    assert outcome(kernels.RETURNS_ZEROS, known_artefacts=known).duplicate_of is None


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (kernels.DOES_NOT_COMPILE, Status.BUILD_FAILED, "error"),
        (kernels.SEGFAULT, Status.CRASHED, "SIGSEGV"),
        (kernels.ABORTS, Status.CRASHED, "SIGABRT"),
        (kernels.LEAVES_WITH_ZERO, Status.CRASHED, "exit code 0"),
        (kernels.LOOPS_FOR_EVER, Status.TIMEOUT, "within"),
        (kernels.PRINTS_GIGABYTES, Status.CRASHED, "printed too much"),
        (kernels.EATS_MEMORY, Status.OUT_OF_MEMORY, "MiB"),
        (kernels.RETURNS_NAN, Status.INCORRECT, "nan"),
        (kernels.RETURNS_ZEROS, Status.INCORRECT, "elements wrong"),
        (kernels.DOES_NOTHING, Status.INCORRECT, "nan"),
        (kernels.WRONG_IN_LAST_ROW, Status.INCORRECT, "1 of"),
        (kernels.SKIPS_LAST_ROW, Status.INCORRECT, "nan"),
        (kernels.WRITES_BEHIND, Status.INCORRECT, "behind the end of the output"),
        (kernels.WRITES_BEFORE, Status.INCORRECT, "before the start of the output"),
        (kernels.CHANGES_INPUT, Status.INCORRECT, "changed its input x"),
        (kernels.FINISHES_LATER, Status.INCORRECT, "nan"),
        (kernels.REPLAYS_BY_SHAPE, Status.INCORRECT, "elements wrong"),
        (kernels.FORGES_ANSWERS, Status.CRASHED, "protocol"),
    ],
    ids=lambda value: "" if not isinstance(value, Status) else value.value,
)
def test_failing_kernel_ends_as_its_own_verdict(text: str, status: Status, said: str) -> None:
    started = time.monotonic()
    result = outcome(text)
    assert result.status is status, result.reasons
    assert said in reason(result)
    assert result.verdict is None and not result.stages[-1].ok
    assert time.monotonic() - started < 60


@pytest.mark.processes
def test_incorrect_kernel_names_case_place_and_size_of_the_error() -> None:
    result = outcome(kernels.WRONG_IN_LAST_ROW)
    (failed,) = [case for case in result.cases if not case.ok]
    assert failed.name == "1x1" and "worst at [0, 0]" in (failed.error or "")


@pytest.mark.evaluates
def test_kernel_that_slows_its_own_clock_is_suspect() -> None:
    result = outcome(kernels.STOPS_THE_CLOCK)
    assert result.status is Status.SUSPECT, result.reasons
    assert "clock" in reason(result) or "physics" in reason(result)
    assert result.verdict is None


@pytest.mark.evaluates
def test_kernel_that_is_wrong_only_once_it_is_timed_is_caught() -> None:
    result = outcome(kernels.WRONG_LATER, effort=Effort.FULL)
    assert result.status is Status.INCORRECT
    assert "timed call" in reason(result)


@pytest.mark.evaluates
def test_output_that_varies_within_tolerance_is_flagged() -> None:
    result = outcome(kernels.NONDETERMINISTIC)
    assert result.status is Status.CORRECT
    assert "nondeterministic" in result.flags


@pytest.mark.processes
@pytest.mark.parametrize("flag", ["-I/etc", "-include/etc/passwd", "-fplugin=x.so", "@/etc/passwd", "-Wl,-rpath,/"])
def test_flag_off_the_list_is_rejected_before_the_compiler_sees_it(flag: str) -> None:
    result = outcome(kernels.HONEST, flags=(flag,))
    assert result.status is Status.REJECTED and flag in reason(result)
    assert [stage.name for stage in result.stages] == ["screen"]


@pytest.mark.processes
def test_unknown_tunable_and_oversized_source_are_rejected() -> None:
    assert outcome(kernels.HONEST, tunables={"TILE": 3}).status is Status.REJECTED
    assert outcome(kernels.HONEST + "//" + "x" * (1 << 20)).status is Status.REJECTED


@pytest.mark.processes
def test_language_the_problem_does_not_take_and_unknown_target_are_said() -> None:
    spec = JobSpec("job", load("softmax_rows"), "gfx000", Source(Language.CPP, kernels.HONEST))
    result = evaluate(spec)
    assert result.status is Status.INFRA_ERROR and "gfx000" in reason(result)


@pytest.mark.processes
def test_cancelled_evaluation_stops_and_says_so() -> None:
    started = time.monotonic()
    spec = JobSpec("job", load("softmax_rows"), "cpu", Source(Language.CPP, kernels.LOOPS_FOR_EVER))
    result = evaluate(spec, cancel=lambda: time.monotonic() - started > 2)
    assert (result.status, result.reasons) == (Status.INFRA_ERROR, ["cancelled"])
    assert time.monotonic() - started < 25


@pytest.mark.processes
def test_evaluation_leaves_no_process_and_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for text in (kernels.LOOPS_FOR_EVER, kernels.SEGFAULT, kernels.DOES_NOT_COMPILE):
        outcome(text, limits=Limits(call_s=1.0))
    assert _sandboxed_processes() == set()
    assert [path.name for path in work_root().iterdir() if "-job-" in path.name] == []


def _sandboxed_processes() -> set[int]:
    """Return the processes below this one that run the candidate's program."""
    found = set()
    for pid in process_tree(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"runners/candidate" in line:
            found.add(pid)
    return found


PYTHON_HONEST = "import torch\ndef custom_kernel(x):\n    return torch.softmax(x, dim=-1)\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("def custom_kernel(x):\n    return x.softmax(-1).double()\n", Status.INCORRECT, "float64"),
        ("def custom_kernel(x):\n    return x.softmax(-1)[:-1]\n", Status.INCORRECT, "expected float32"),
        ("def custom_kernel(x):\n    return []\n", Status.INCORRECT, "list of 0"),
        (
            "import torch\nclass Lazy(torch.Tensor): pass\n"
            "def custom_kernel(x):\n    return x.softmax(-1).as_subclass(Lazy)\n",
            Status.INCORRECT,
            "Lazy",
        ),
        ("def custom_kernel(x):\n    raise RuntimeError('no luck')\n", Status.CRASHED, "no luck"),
        ("def custom_kernel(x:\n", Status.BUILD_FAILED, "SyntaxError"),
        ("x = 1\n", Status.BUILD_FAILED, "custom_kernel"),
    ],
)
def test_python_candidate_that_fails_says_how(text: str, status: Status, said: str) -> None:
    result = outcome(text, language=Language.PYTHON)
    assert result.status is status, result.reasons
    assert said in reason(result)


@pytest.mark.evaluates
def test_python_candidate_is_timed_like_any_other() -> None:
    result = outcome(PYTHON_HONEST, language=Language.PYTHON)
    assert result.status is Status.CORRECT, result.reasons
    assert result.speedup is not None and 0.2 < result.speedup.median < 5


@pytest.mark.evaluates
def test_parent_is_timed_in_the_same_sessions() -> None:
    result = outcome(kernels.HONEST, parent=Source(Language.CPP, kernels.HONEST + "// parent\n"))
    assert result.versus_parent is not None and result.versus_parent.baseline == "parent"
    assert all(case.parent_us for case in result.cases if case.candidate_us)


@pytest.mark.evaluates
def test_parent_with_the_source_of_the_baseline_is_not_timed_a_second_time() -> None:
    parent = baseline_source(open_bundle(load("softmax_rows")), Baseline.EAGER, "cpu")
    result = outcome(kernels.HONEST, parent=parent)
    assert result.speedup is not None and result.versus_parent is not None
    assert result.versus_parent.baseline == "parent"
    assert result.versus_parent.median == result.speedup.median
    timed = [case for case in result.cases if case.candidate_us]
    assert timed and all(case.parent_us == case.baseline_us for case in timed)
    assert all(case.samples["parent"] == case.samples["baseline"] for case in timed)


@pytest.mark.evaluates
def test_kernel_far_slower_than_the_best_is_abandoned_after_quick_timing() -> None:
    best = {"1024x256": 1.0, "512x1024": 1.0, "256x8192": 1.0}
    result = outcome(kernels.HONEST, effort=Effort.FULL, best_us=best)
    assert result.status is Status.CORRECT and "abandoned_slow" in result.flags
    assert result.stages[-1].name == "quick timing"


@pytest.mark.evaluates
@pytest.mark.parametrize(("times", "status"), [(1, Status.CORRECT), (2, Status.SUSPECT)])
def test_kernel_is_suspect_when_it_is_doubted_twice(
    times: int, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = iter([["the clocks differ"]] * times)
    monkeypatch.setattr("runners.harness.comparison.failed_checks", lambda *_: next(heard, []))
    result = outcome(kernels.HONEST)
    assert result.status is status and "measured_again" in result.flags
    assert reason(result) == ("the clocks differ" if status is Status.SUSPECT else "")


@pytest.mark.evaluates
def test_timings_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged again they could be called suspect without having been doubted twice."""
    heard = iter([[], ["the clocks differ"]])
    monkeypatch.setattr("runners.harness.comparison.failed_checks", lambda *_: next(heard))
    result = outcome(kernels.HONEST)
    assert result.status is Status.CORRECT and "measured_again" not in result.flags


@pytest.mark.processes
def test_build_only_runs_nothing() -> None:
    result = outcome(kernels.SEGFAULT, effort=Effort.BUILD)
    assert result.flags == ["not_executed"] and result.build is not None and result.build.ok
    assert result.sandbox == ""
    assert [stage.name for stage in result.stages] == ["screen", "build"]
