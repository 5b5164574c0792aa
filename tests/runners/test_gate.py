"""Test `python -m runners gate`: what it decides from results, its exit codes, and what it writes for CI services."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from benchmarks.gate_rules import MACHINES, Machine, gate
from runners.gate.decision import Decision, Rules, Ruling, decide, pooled, resolution
from runners.gate.reports import junit, markdown
from runners.harness.comparison import PLANS
from runners.harness.timing.plan import FULL
from runners.job import (
    BuildReport,
    CaseResult,
    Effort,
    Failure,
    JobResult,
    JobSpec,
    Language,
    ProblemBundle,
    Source,
    Speedup,
    Status,
    Verdict,
)
from tests.runners import kernels
from tests.runners.command_line import command

SPEC = JobSpec(
    "job", ProblemBundle("softmax_rows", "native", "problem.toml", {}), "cpu", Source(Language.CPP, "new"),
    parent=Source(Language.CPP, "old"),
)  # fmt: skip


def compared(median: float, low: float, high: float, band: float = 1.01) -> JobResult:
    """Return a result in which the candidate has `median` times the speed of the kernel it was timed with."""
    verdict = Verdict.SLOWER if high < 1 / band else Verdict.SAME
    ratio = Speedup(median, low, high, "parent", band, verdict)
    case = CaseResult("rows", True, candidate_us=10 / median, parent_us=10.0)
    return JobResult("job", Status.CORRECT, versus_parent=ratio, cases=[case], environment={"device": "CPU"})


def failed(status: Status, side: str, reason: str = "reason") -> JobResult:
    return JobResult("job", status, reasons=[reason], failures=[Failure(side, "tests", reason)])


def answers(*results: JobResult) -> tuple[Callable[[JobSpec], JobResult], list[Effort]]:
    """Return an `evaluate` that gives these results in turn, and the efforts that it was asked for."""
    waiting, asked = list(results), []

    def evaluate(spec: JobSpec) -> JobResult:
        asked.append(spec.effort)
        return waiting.pop(0)

    return evaluate, asked


def ruling(*results: JobResult, tolerance: float = 0.0, looks: int = 5) -> Ruling:
    return decide(SPEC, Rules(tolerance, looks=looks), answers(*results)[0]).ruling


def test_equal_kernels_pass_after_one_look() -> None:
    evaluate, asked = answers(compared(1.0, 0.995, 1.005))
    assert decide(SPEC, Rules(), evaluate).ruling is Ruling.NOT_SLOWER
    assert asked == [Effort.FULL]


def test_slow_down_is_claimed_only_after_a_second_look_in_cold_processes() -> None:
    evaluate, asked = answers(compared(0.95, 0.94, 0.96), compared(0.951, 0.945, 0.957))
    assert decide(SPEC, Rules(), evaluate).ruling is Ruling.SLOWER
    assert asked == [Effort.FULL, Effort.CONFIRM]


def test_slow_down_that_the_second_look_does_not_show_raises_no_alarm() -> None:
    assert ruling(compared(0.95, 0.94, 0.96), compared(1.0, 0.995, 1.005)) is Ruling.NOT_SLOWER


def test_slow_down_that_only_further_looks_show_is_undecided_and_no_alarm() -> None:
    low = [compared(0.95, 0.94, 0.96) for _ in range(4)]
    assert ruling(compared(1.01, 0.95, 1.03), *low) is Ruling.UNDECIDED


def test_slow_down_within_the_tolerance_passes() -> None:
    looks = compared(0.95, 0.94, 0.96), compared(0.95, 0.94, 0.96)
    assert ruling(*looks, tolerance=0.10) is Ruling.NOT_SLOWER


def test_slow_down_of_three_per_cent_is_found_on_a_busy_machine_by_more_looks() -> None:
    # Seen once: 3.4 % slower, beside a noise floor of 1.034, which no single comparison can overcome.
    busy = [compared(0.967, 0.963, 0.971, band=1.034) for _ in range(5)]
    evaluate, asked = answers(*busy)
    decision = decide(SPEC, Rules(), evaluate)
    assert decision.ruling is Ruling.SLOWER
    assert asked == [Effort.FULL, *[Effort.CONFIRM] * (len(asked) - 1)] and len(asked) > 2
    assert f"after {len(asked)} looks" in decision.reason


def test_machine_too_noisy_to_tell_says_so_and_never_passes_in_silence() -> None:
    noisy = [compared(0.97, 0.94, 1.0, band=1.12) for _ in range(5)]
    decision = decide(SPEC, Rules(), answers(*noisy)[0])
    assert decision.ruling is Ruling.UNDECIDED
    assert len(decision.looks) == 5
    assert resolution(pooled([look.versus_parent for look in noisy if look.versus_parent]), 0.0) > 0.05
    assert "cannot be shown here" in decision.reason


def test_equal_kernels_on_a_noisy_machine_pass_once_the_looks_exclude_what_matters() -> None:
    evaluate, asked = answers(*[compared(1.0, 0.995, 1.005, band=1.06) for _ in range(5)])
    assert decide(SPEC, Rules(), evaluate).ruling is Ruling.NOT_SLOWER
    assert len(asked) > 1


def test_looks_that_contradict_each_other_beyond_their_intervals_decide_nothing() -> None:
    centres = (0.90, 0.99, 0.89, 0.99, 0.90)
    assert ruling(*[compared(c, c - 0.005, c + 0.005) for c in centres]) is Ruling.UNDECIDED


def test_pooled_looks_stray_less_than_one_and_are_wider_where_they_contradict_each_other() -> None:
    alike = [compared(0.95, 0.94, 0.96, band=1.04).versus_parent for _ in range(4)]
    apart = [compared(c, c - 0.01, c + 0.01, band=1.04).versus_parent for c in (0.8, 0.9, 1.0, 1.1)]
    one, four, spread = (pooled([look for look in looks if look]) for looks in (alike[:1], alike, apart))
    assert four.noise == pytest.approx(one.noise / 2)
    assert four.half == pytest.approx(one.half / 2)
    assert spread.half > 5 * four.half


@pytest.mark.parametrize("machine", MACHINES)
def test_simulated_gates_raise_few_false_alarms_and_let_few_slow_downs_through(machine: Machine) -> None:
    rng = random.Random(3)
    alarms = [gate(machine, 0.0, Rules(), rng)[0] for _ in range(600)].count(Ruling.SLOWER)
    silent = [gate(machine, 0.08, Rules(), rng)[0] for _ in range(600)].count(Ruling.NOT_SLOWER)
    assert alarms <= 12 and silent <= 6


@pytest.mark.parametrize("status", [Status.INCORRECT, Status.BUILD_FAILED, Status.CRASHED, Status.TIMEOUT,
                                    Status.SUSPECT, Status.REJECTED])  # fmt: skip
def test_kernel_that_fails_is_wrong(status: Status) -> None:
    assert ruling(failed(status, "candidate")) is Ruling.WRONG


def test_kernel_that_fails_in_the_second_look_is_wrong() -> None:
    assert ruling(compared(0.95, 0.94, 0.96), failed(Status.INCORRECT, "candidate")) is Ruling.WRONG


@pytest.mark.parametrize("result", [failed(Status.INFRA_ERROR, "harness"), failed(Status.TOO_LARGE, "harness"),
                                    failed(Status.CRASHED, "baseline")])  # fmt: skip
def test_failure_of_the_machine_is_not_the_kernels(result: JobResult) -> None:
    assert ruling(result) is Ruling.NO_VERDICT


def test_opponent_that_fails_gives_no_verdict_and_is_named() -> None:
    alone = JobResult("job", Status.CORRECT, failures=[Failure("parent", "build", "no such function")])
    decision = decide(SPEC, Rules(), answers(alone)[0])
    assert decision.ruling is Ruling.NO_VERDICT
    assert "parent, build: no such function" in decision.reason


def test_junit_reports_the_failed_test_with_the_compilers_words() -> None:
    build = BuildReport(False, 1.0, False, "error: <T> & \x00 \x1b[31m")
    result = JobResult("job", Status.BUILD_FAILED, reasons=["does not build \x07"], build=build)
    suite = read_xml(junit(Decision(Ruling.WRONG, "does not build \x07", (result,), Rules()), "p", "new", "old"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.text is not None and "error: <T> &" in failure.text


@pytest.mark.parametrize(
    ("ruled", "counts"),
    [
        (Ruling.NOT_SLOWER, ("0", "0")),
        (Ruling.SLOWER, ("1", "0")),
        (Ruling.NO_VERDICT, ("0", "1")),
        (Ruling.UNDECIDED, ("0", "1")),
    ],
)
def test_junit_counts_failures_and_errors(ruled: Ruling, counts: tuple[str, str]) -> None:
    decision = Decision(ruled, "reason", (compared(1.0, 0.9, 1.1),), Rules())
    suite = read_xml(junit(decision, "p", "new", "old"))
    assert (suite.get("failures"), suite.get("errors")) == counts
    assert len(suite.findall(".//failure")) == int(counts[0])
    assert len(suite.findall(".//error")) == int(counts[1])


def test_words_of_a_kernel_cannot_leave_their_block_or_cell_in_markdown() -> None:
    reason = "```\n# Approved\n```` <img src=x>"
    result = compared(1.0, 0.9, 1.1)
    result = JobResult(**{**vars(result), "cases": [CaseResult("a|b`c\nd", True, candidate_us=1.0, parent_us=1.0)]})
    text = markdown(Decision(Ruling.WRONG, reason, (result,), Rules()), "p", "new|`x", "old")
    assert text.count("```") == 2
    assert "| `a¦b'c d` |" in text


def test_tolerance_that_is_no_share_is_refused() -> None:
    done = gated("--tolerance", "5")
    assert done.returncode == 2
    assert "0.02 is 2 %" in done.stderr


def test_a_single_look_is_refused_because_it_never_shows_a_slow_down() -> None:
    done = gated("--looks", "1")
    assert done.returncode == 2
    assert "one comparison never shows a slow-down" in done.stderr


def test_candidate_that_does_not_exist_is_named() -> None:
    done = gated("--candidate", "nowhere.cpp")
    assert done.returncode == 2
    assert "nowhere.cpp: No such file" in done.stderr


@pytest.mark.evaluates
def test_gate_measures_itself_and_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tmp_path / "good.cpp", tmp_path / "bad.cpp"
    good.write_text(kernels.HONEST)
    bad.write_text(kernels.RETURNS_ZEROS)
    report, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    # Rules are tested above: a wide tolerance ends it after one look, however noisy the machine is. Every further
    # session would start three processes.
    monkeypatch.setitem(PLANS, Effort.FULL, replace(FULL, sessions=1, more_sessions=0))
    same = gated(
        "--candidate", str(good), "--against", str(good), "--junit", str(report), "--markdown", str(summary),
        "--tolerance", "0.3",
    )  # fmt: skip
    assert same.returncode == 0, same.stdout + same.stderr
    assert read_xml(report.read_text()).get("failures") == "0"
    wrong = gated("--candidate", str(bad), "--against", str(good), "--markdown", str(summary))
    assert wrong.returncode == 4, wrong.stdout + wrong.stderr
    assert "not slower" in summary.read_text() and "wrong" in summary.read_text()


def read_xml(text: str) -> xml.Element:
    return xml.fromstring(text)  # noqa: S314 - our own code wrote it


def gated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m runners gate` with these options, the others as they are needed."""
    given = {"--problem": "softmax_rows", "--candidate": __file__, "--against": __file__}
    given |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    return command("gate", *(word for pair in given.items() for word in pair))
