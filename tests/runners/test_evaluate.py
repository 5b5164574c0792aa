"""Every way a kernel can end, through the whole harness."""

from __future__ import annotations

import dataclasses
import os
import time
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from runners.harness import evaluate
from runners.harness.processes.preloading import PROGRAM
from runners.harness.timing import environment
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.environment import HARNESS_VERSION
from runners.harness.verdict import plausibility
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

LIMITS = Limits(call_s=3.0, total_s=120.0, memory_bytes=1 << 30)


def outcome(text: str, *, language: Language = Language.CPP, **changes: object) -> JobResult:
    source = Source(language, text, changes.pop("tunables", {}), changes.pop("flags", ()))  # type: ignore[arg-type]
    settings: dict[str, object] = {"effort": Effort.QUICK, "limits": LIMITS, **changes}
    return evaluate(JobSpec("job", load("softmax_rows"), "cpu", source, **settings))  # type: ignore[arg-type]


def reason(result: JobResult) -> str:
    return " ".join(result.reasons)


@pytest.fixture(scope="module")
def judged() -> list[list[str]]:
    """Return what spoke against the timings of the honest kernel, each time that they were judged."""
    return []


@pytest.fixture(scope="module")
def honest(judged: list[list[str]]) -> JobResult:
    """Evaluate an honest kernel beside a parent, on a machine that says that it has another product's device."""
    described, failed_checks = environment.describe_safely, plausibility.failed_checks

    def noted(*given: Any) -> list[str]:
        judged.append(failed_checks(*given))
        return judged[-1]

    def on_another_product(target: str, gpu: dict[str, Any] | None) -> dict[str, Any]:
        return {**described(target, gpu), "gpu": "NVIDIA H200"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runners.harness.evaluation.environment.describe_safely", on_another_product)
        patch.setattr("runners.harness.comparison.failed_checks", noted)
        return outcome(kernels.HONEST, parent=Source(Language.CPP, kernels.HONEST + "// parent\n"))


@pytest.mark.evaluates
def test_honest_kernel_is_correct_with_times_errors_and_environment(honest: JobResult) -> None:
    assert (honest.status, honest.reasons) == (Status.CORRECT, [])
    assert honest.speedup is not None
    assert honest.speedup.low <= honest.speedup.median <= honest.speedup.high
    assert honest.verdict is honest.speedup.verdict
    timed = [case for case in honest.cases if case.candidate_us is not None]
    assert timed and all(case.samples["candidate"] and case.baseline_us for case in timed)
    assert all(case.max_abs_error is not None for case in honest.cases)
    assert [stage.name for stage in honest.stages] == [
        "screen",
        "build",
        "smallest",
        "tests",
        "start",
        "quick timing",
    ]
    assert honest.harness_version == HARNESS_VERSION and honest.environment["torch"]
    assert 0.0 <= honest.environment[OTHERS_SHARE] <= 1.0
    assert loads(JobResult, dumps(honest)) == honest


@pytest.mark.evaluates
def test_timings_are_judged_once(honest: JobResult, judged: list[list[str]]) -> None:
    """Judged again they could be called suspect without having been doubted twice."""
    assert len(judged) == (2 if "measured_again" in honest.flags else 1)


@pytest.mark.evaluates
def test_parent_is_timed_in_the_same_sessions(honest: JobResult) -> None:
    assert honest.versus_parent is not None and honest.versus_parent.baseline == "parent"
    assert all(case.parent_us for case in honest.cases if case.candidate_us)


@pytest.mark.evaluates
def test_times_of_another_product_than_the_targets_carry_a_flag(
    honest: JobResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Flag.OTHER_PRODUCT in honest.flags
    # What was only built says nothing about a device.
    monkeypatch.setattr("runners.harness.evaluation.environment.describe_safely", lambda *_: {"gpu": "NVIDIA H200"})
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
        pytest.param(kernels.ABORTS, Status.CRASHED, "SIGABRT", marks=pytest.mark.long),
        (kernels.LEAVES_WITH_ZERO, Status.CRASHED, "exit code 0"),
        (kernels.LOOPS_FOR_EVER, Status.TIMEOUT, "within"),
        (kernels.PRINTS_GIGABYTES, Status.CRASHED, "printed too much"),
        (kernels.EATS_MEMORY, Status.OUT_OF_MEMORY, "MiB"),
        (kernels.RETURNS_NAN, Status.INCORRECT, "nan"),
        pytest.param(kernels.RETURNS_ZEROS, Status.INCORRECT, "elements wrong", marks=pytest.mark.long),
        pytest.param(kernels.DOES_NOTHING, Status.INCORRECT, "nan", marks=pytest.mark.long),
        (kernels.WRONG_IN_LAST_ROW, Status.INCORRECT, "1x1: 1 of 1 elements wrong; worst at [0, 0]"),
        (kernels.SKIPS_LAST_ROW, Status.INCORRECT, "nan"),
        (kernels.WRITES_BEHIND, Status.INCORRECT, "behind the end of the output"),
        (kernels.WRITES_BEFORE, Status.INCORRECT, "before the start of the output"),
        (kernels.CHANGES_INPUT, Status.INCORRECT, "changed its input x"),
        (kernels.FINISHES_LATER, Status.INCORRECT, "nan"),
        (kernels.FINISHES_LATER_IN_A_CHILD, Status.INCORRECT, "nan"),
        (kernels.REPLAYS_BY_SHAPE, Status.INCORRECT, "elements wrong"),
        (kernels.FORGES_ANSWERS, Status.CRASHED, "protocol"),
    ],
    ids=lambda value: "" if not isinstance(value, Status) else value.value,
)
def test_failing_kernel_ends_as_its_own_verdict_and_leaves_no_process_and_no_file_behind(
    text: str, status: Status, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started = time.monotonic()
    result = outcome(
        text, limits=dataclasses.replace(LIMITS, call_s=1.0) if text == kernels.LOOPS_FOR_EVER else LIMITS
    )
    assert result.status is status, result.reasons
    assert said in reason(result)
    assert result.verdict is None and not result.stages[-1].ok
    if status is Status.INCORRECT:
        (failed,) = [case for case in result.cases if not case.ok]
        assert reason(result) == f"{failed.name}: {failed.error}"
    assert time.monotonic() - started < 60
    assert _sandboxed_processes() == set()
    assert [path.name for path in work_root().iterdir() if "-job-" in path.name] == []


@pytest.mark.evaluates
def test_kernel_that_slows_its_own_clock_is_suspect() -> None:
    result = outcome(kernels.STOPS_THE_CLOCK)
    assert result.status is Status.SUSPECT, result.reasons
    assert "measured_again" in result.flags
    assert "clock" in reason(result) or "physics" in reason(result)
    assert result.verdict is None


@pytest.mark.evaluates
def test_kernel_that_is_wrong_only_once_it_is_timed_is_caught() -> None:
    result = outcome(kernels.WRONG_LATER)
    assert result.status is Status.INCORRECT
    assert "timed call" in reason(result)


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
    started, begun, asked = time.monotonic(), Event(), count()
    spec = JobSpec("job", load("softmax_rows"), "cpu", Source(Language.CPP, kernels.LOOPS_FOR_EVER))

    def noted(stage: str, _: str) -> None:
        if stage == "smallest":
            begun.set()

    # Asked a few times after the kernel's process began to start, so that the kernel is computing.
    result = evaluate(spec, cancel=lambda: begun.is_set() and next(asked) >= 6, on_progress=noted)
    assert (result.status, result.reasons) == (Status.INFRA_ERROR, ["cancelled"])
    assert time.monotonic() - started < 25


def _sandboxed_processes() -> set[int]:
    """Return the processes below this one that run the candidate's program."""
    found = set()
    for pid in process_tree(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        # A fork server's command line names files in that folder.
        if bytes(PROGRAM) in line.split(b"\0"):
            found.add(pid)
    return found


PYTHON_HONEST = "import torch\ndef custom_kernel(x):\n    return torch.softmax(x, dim=-1)\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        # What a candidate's own process says of these, `test_candidate_calls.py` shows too.
        pytest.param(
            "def custom_kernel(x):\n    return x.softmax(-1).double()\n",
            Status.INCORRECT,
            "float64",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "def custom_kernel(x):\n    return x.softmax(-1)[:-1]\n",
            Status.INCORRECT,
            "expected float32",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "def custom_kernel(x):\n    return []\n", Status.INCORRECT, "list of 0", marks=pytest.mark.long
        ),
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
def test_parent_with_the_source_of_the_baseline_is_not_timed_a_second_time_even_if_all_is_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Doubt the first timing: a kernel that is doubted once is not suspect."""
    heard = iter([["the clocks differ"]])
    monkeypatch.setattr("runners.harness.comparison.failed_checks", lambda *_: next(heard, []))
    parent = baseline_source(open_bundle(load("softmax_rows")), Baseline.EAGER, "cpu")
    result = outcome(kernels.HONEST, parent=parent)
    assert (result.status, result.reasons) == (Status.CORRECT, []) and "measured_again" in result.flags
    assert result.speedup is not None and result.versus_parent is not None
    assert result.versus_parent.baseline == "parent"
    assert result.versus_parent.median == result.speedup.median
    timed = [case for case in result.cases if case.candidate_us]
    assert timed and all(case.parent_us == case.baseline_us for case in timed)
    assert all(case.samples["parent"] == case.samples["baseline"] for case in timed)


@pytest.mark.evaluates
def test_kernel_far_slower_than_the_best_is_abandoned_after_quick_timing_and_flagged_if_its_output_varies() -> None:
    best = {"1024x256": 1.0, "512x1024": 1.0, "256x8192": 1.0}
    result = outcome(kernels.NONDETERMINISTIC, effort=Effort.FULL, best_us=best)
    assert result.status is Status.CORRECT, result.reasons
    assert "abandoned_slow" in result.flags and "nondeterministic" in result.flags
    assert result.stages[-1].name == "quick timing"


# A kernel that slows its own clock is doubted twice too.
@pytest.mark.long
@pytest.mark.evaluates
def test_kernel_is_suspect_when_it_is_doubted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = iter([["the clocks differ"]] * 2)
    monkeypatch.setattr("runners.harness.comparison.failed_checks", lambda *_: next(heard, []))
    result = outcome(kernels.HONEST)
    assert result.status is Status.SUSPECT and "measured_again" in result.flags
    assert reason(result) == "the clocks differ"


@pytest.mark.processes
def test_build_only_runs_nothing() -> None:
    result = outcome(kernels.SEGFAULT, effort=Effort.BUILD)
    assert result.flags == ["not_executed"] and result.build is not None and result.build.ok
    assert result.sandbox == ""
    assert [stage.name for stage in result.stages] == ["screen", "build"]
