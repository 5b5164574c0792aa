"""Test device time and call time on pages, in the API, reports and prompts: what a verdict rests on, and what
failed."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from statistics import geometric_mean
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client

from optimizer.actions.run import NewRun, do_clone_run, do_start_run
from optimizer.agents import sections, task_sections
from optimizer.agents.delimiters import Delimiters
from optimizer.models import Job, Problem, Run, Runner, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.judged import as_judged, judged_mean_us
from optimizer.queries.run_table import closing_table
from optimizer.queries.timing import case_notes, failure_lines, load_warning, roofline_text
from optimizer.reports.facts import facts_of
from optimizer.reports.markdown import markdown_report
from optimizer.runs.history import history_of
from runners.commands.table import table
from runners.job import (
    OTHERS_SHARE,
    CaseResult,
    Effort,
    Failure,
    JobResult,
    JobSpec,
    Language,
    MemoryUse,
    NoiseFloor,
    Objective,
    Source,
    Speedup,
    Status,
    Verdict,
)
from runners.job_source import RunnerCard
from tests.driven_runs import make_finished_run
from tests.factories import correct_result, drive, fake_time_us, make_run, make_team, make_user
from tests.optimizer.clients import Call

pytestmark = pytest.mark.django_db
GPU_QUEUES = ("build", "bench.sm_90")
NOISY = NoiseFloor(1.09, comparisons=12, measured_at=1.76e9, driver="nvidia 580.65", load_average=7.5, wide=True)


def on_a_gpu(spec: JobSpec, **_callbacks: Any) -> JobResult:
    """Imitate a harness on a GPU: the call costs the host more than the kernel costs the device."""
    if spec.effort == Effort.BUILD:
        return JobResult(spec.job_id, Status.CORRECT)
    device_us = fake_time_us(spec)
    plain = correct_result(spec, device_us)
    by_call = Speedup(1.25, 1.2, 1.3, "torch_eager", 1.02, Verdict.FASTER, Objective.CALL)
    big = replace(
        plain.cases[0],
        candidate_call_us=2.5 * device_us,
        baseline_call_us=320.0,
        speedup=200.0 / device_us,
        speedup_low=190.0 / device_us,
        speedup_high=210.0 / device_us,
        call_speedup=1.25,
        call_speedup_low=1.2,
        call_speedup_high=1.3,
        roofline_us=device_us * 0.62,
        roofline_share=0.62,
    )
    many = replace(big, name="many launches", basis=Objective.CALL, flags=["launch_bound"])
    failures = [Failure("parent", "build", "timed out after 300 s")] if spec.parent else []
    return replace(
        plain,
        cases=[big, many],
        speedup=by_call if spec.objective == Objective.CALL else plain.speedup,
        call_speedup=by_call,
        versus_parent=None,
        failures=failures,
        noise_floor=NOISY,
        memory=MemoryUse(
            footprint_bytes=4 << 30, needed_bytes=9 << 30, available_bytes=80 << 30, peak_bytes=7 << 30
        ),
    )


def gpu_run(team: Team, user: User | None = None, **more: Any) -> Run:
    run = make_run(team, user)
    run.delete()
    new: dict[str, Any] = {
        "team": team,
        "problem_version": Problem.objects.get(slug="softmax_rows").latest(),
        "target": Target.objects.get(key="sm_90"),
        "strategy": "tune",
        "budget": Budget(evaluations=3),
        "settings": {"confirm": False},
    }
    return do_start_run(user, NewRun(**(new | more)))


@pytest.fixture(scope="module")
def finished_run(module_rows: None) -> Run:
    """Make the rows of a run on a GPU that has ended, once for the module. Tests ask for `run`."""
    team = make_team()
    return drive(gpu_run(team, make_user(team)), on_a_gpu, queues=GPU_QUEUES)


@pytest.fixture
def run(finished: Run) -> Run:
    """Return a run on a GPU that has ended."""
    return finished


def page_of(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def test_both_times_are_stored_and_the_share_of_the_roofline(run: Run) -> None:
    assert run.best_kernel is not None
    evaluation = run.best_kernel.evaluation
    assert evaluation.time_us is not None and evaluation.call_us == pytest.approx(2.5 * evaluation.time_us)
    assert (evaluation.call_speedup, evaluation.call_speedup_low) == (1.25, 1.2)
    assert evaluation.roofline_share == pytest.approx(0.62)


def test_a_kernels_page_shows_both_times_what_a_case_is_judged_by_and_why(pages: Client, run: Run) -> None:
    assert run.best_kernel is not None
    page = page_of(pages, f"/runs/{run.pk}/kernels/{run.best_kernel.number}/")
    for words in (
        "Device</th>",
        "Call</th>",
        "Speedup (call)</th>",
        "judged by this",
        "62 % of the measured ceiling",
    ):
        assert words in page
    assert "enqueues more launches per call than the device&#x27;s queue holds" in page
    assert "Limited by the host&#x27;s launches; device time alone would hide this." in page
    assert (
        "This machine was noisy when its noise floor was measured (1.09): small speedups cannot be shown." in page
    )
    assert "7.0 GiB at its peak" in page and "1.090, measured" in page


def test_a_parent_that_failed_is_named_with_its_stage(pages: Client, run: Run) -> None:
    child = run.kernels.filter(parent_links__isnull=False).first()
    assert child is not None
    page = page_of(pages, f"/runs/{run.pk}/kernels/{child.number}/")
    assert "Parent: build timed out after 300 s; compared with the baseline only." in page


def test_the_runs_page_the_comparison_and_the_report_show_both(pages: Client, run: Run) -> None:
    table_of_kernels = page_of(pages, f"/runs/{run.pk}/")
    assert ">Device" in table_of_kernels and ">Call" in table_of_kernels
    assert "62 % of the measured ceiling" in table_of_kernels and "This machine was noisy" in table_of_kernels
    other = drive(gpu_run(run.team, run.created_by), on_a_gpu, queues=GPU_QUEUES)
    assert "Device</th>" in page_of(pages, f"/runs/compare/?run={run.pk}&run={other.pk}")
    said = markdown_report(facts_of(run))
    assert "Device, µs | Call, µs" in said and "Speedup (call)" in said and "62 % of the measured ceiling" in said
    assert "Speedup (call)" in page_of(pages, f"/runs/{run.pk}/report.html")
    assert "device" in closing_table(run) and "call" in closing_table(run).splitlines()[0]


def test_on_a_cpu_nothing_of_it_shows(pages: Client, team: Team, member: User) -> None:
    run = make_finished_run(team, member)
    assert run.best_kernel is not None
    for address in ("", f"kernels/{run.best_kernel.number}/", "report.html"):
        page = page_of(pages, f"/runs/{run.pk}/{address}")
        for words in ("Speedup (call)", "call time", ">Device<", "measured ceiling", "Noise floor", "Optimised"):
            assert words not in page, (address, words)
    said = markdown_report(facts_of(run))
    assert "Call" not in said and "Roofline" not in said and "Optimised" not in said
    assert "call" not in closing_table(run).splitlines()[0]


def test_the_runners_page_warns_of_a_noisy_machine(pages: Client, team: Team, member: User) -> None:
    from optimizer.job_source import DatabaseJobSource

    assert "Noise floor" not in page_of(pages, "/runners/")
    started = gpu_run(team, member)
    DatabaseJobSource().check_in(RunnerCard("test-runner", "sm_90", ("bench.sm_90",), "H100", "bubblewrap"))
    drive(started, on_a_gpu, queues=GPU_QUEUES)
    assert Runner.objects.get(name="test-runner").noise_floor["ratio"] == 1.09
    page = page_of(pages, "/runners/")
    assert "1.090" in page and "Noisy" in page and "This machine was noisy" in page


def test_the_api_tells_both_times_and_the_objective(api: Call, run: Run) -> None:
    assert run.best_kernel is not None
    outcome = api("get", f"/runs/{run.pk}/kernels/{run.best_kernel.number}").json()["evaluation"]
    assert outcome["call_us"] == pytest.approx(2.5 * outcome["time_us"])
    assert (outcome["call_speedup"], outcome["roofline_share"], outcome["failed_side"]) == (1.25, 0.62, "")
    assert api("get", f"/runs/{run.pk}").json()["objective"] == "device"


def test_a_run_that_optimises_call_time_says_so_everywhere(pages: Client, team: Team, member: User) -> None:
    run = drive(gpu_run(team, member, objective="call"), on_a_gpu, queues=GPU_QUEUES)
    specs = Job.objects.filter(evaluation__kernel__run=run).values_list("spec__objective", flat=True)
    assert set(specs) == {"call"}
    assert run.best_speedup == 1.25
    page = page_of(pages, f"/runs/{run.pk}/")
    assert "call time (host included)" in page and "by call time" in page
    assert "Call time (host included)" in markdown_report(facts_of(run))
    assert "by call time" in closing_table(run)
    assert do_clone_run(member, run).objective == "call"
    assert 'value="call" selected' in page_of(pages, f"/runs/new/?clone={run.pk}")
    history = history_of(run)
    assert "host included" in task_sections.objective(history)
    best = history.best()
    assert best is not None and best.result is not None
    reference = history.kernels[0].result
    assert reference is not None
    by_call = [case.candidate_call_us or 0.0 for case in reference.cases if case.candidate_call_us]
    assert best.time_us == judged_mean_us(reference) == pytest.approx(geometric_mean(by_call))


def test_a_run_may_be_started_for_call_time_by_form_api_and_command_line_on_a_gpu_only(
    pages: Client, api: Call, team: Team, member: User
) -> None:
    gpu_run(team, member).delete()
    form = {
        "problem": "softmax_rows", "target": "sm_90", "strategy": "tune", "team": team.slug, "seed": 0,
        "baseline": "torch_eager", "objective": "call", "budget_evaluations": 3, "dispatcher": "celery",
        "settings.concurrency": 1, "settings.settle": 3, "settings.sampler": "gp", "settings.profile": "never",
    }  # fmt: skip
    pages.post("/runs/new/", form)
    assert Run.objects.latest("pk").objective == "call"
    pages.post("/runs/new/", form | {"target": "cpu"})
    assert Run.objects.latest("pk").objective == "device", "the field is hidden where the times are the same"
    body = {"problem": "softmax_rows", "target": "sm_90", "team": team.slug, "objective": "call"}
    assert api("post", "/runs", body).json()["objective"] == "call"
    refused = api("post", "/runs", body | {"target": "cpu"})
    assert refused.status_code == 422 and "On a CPU" in refused.content.decode()
    out = StringIO()
    call_command(
        "run", "--problem", "softmax_rows", "--target", "sm_90", "--objective", "call", "--json", stdout=out
    )
    assert json.loads(out.getvalue())["objective"] == "call"
    with pytest.raises(CommandError, match="On a CPU"):
        call_command("run", "--problem", "softmax_rows", "--objective", "call")
    with pytest.raises(ValidationError):
        gpu_run(team, member, objective="joules")


def test_agents_read_both_times_the_roofline_and_what_failed(run: Run) -> None:
    history = history_of(run)
    child = next(view for view in history.kernels if view.parent_keys)
    said = sections.outcome(child, Delimiters("0mark0"))
    assert "call with the host" in said and "judged by call time" in said and "judged by device time" in said
    assert "62 % of the measured ceiling" in said
    assert "Parent: build timed out after 300 s" in said
    assert "device alone" in task_sections.objective(history)


def test_agents_of_a_cpu_run_read_nothing_of_it(team: Team) -> None:
    history = history_of(make_finished_run(team))
    said = sections.outcome(history.kernels[0], Delimiters("0mark0")) + task_sections.objective(history)
    assert "call" not in said and "ceiling" not in said


def test_a_case_that_is_judged_by_call_time_is_charted_by_it() -> None:
    case = CaseResult(
        "a", ok=True, candidate_us=1.0, candidate_call_us=9.0, speedup=5.0, call_speedup=1.1, basis=Objective.CALL
    )
    result = JobResult("j", Status.CORRECT, cases=[case])
    assert [one.speedup for one in as_judged(result)] == [1.1]
    assert judged_mean_us(result) == pytest.approx(9.0)


def test_a_host_that_limits_a_call_is_noticed_from_one_and_a_half_times_the_device_time() -> None:
    def notes(call_us: float, *flags: str) -> list[str]:
        found = case_notes(
            CaseResult("a", ok=True, candidate_us=100.0, candidate_call_us=call_us, flags=list(flags))
        )
        return [note.flag for note in found]

    assert notes(149.0) == [] and notes(151.0) == ["host_bound"]
    assert notes(500.0, "launch_bound") == ["launch_bound"], "one reason is enough"
    assert notes(100.0, "slow_reference") == ["slow_reference"]


def test_a_share_of_the_roofline_is_told_in_words() -> None:
    assert roofline_text(0.62) == "62 % of the measured ceiling"
    assert roofline_text(0.004) == "0.4 % of the measured ceiling"
    assert roofline_text(None) == ""


@pytest.mark.parametrize("share", [None, 0.0, 0.149, float("nan"), -1.0, 1e9, "0.9"])
def test_a_quiet_machine_or_a_share_that_is_none_warns_of_no_load(share: object) -> None:
    assert load_warning(JobResult("j", Status.CORRECT, environment={OTHERS_SHARE: share})) == ""
    assert load_warning(JobResult("j", Status.CORRECT)) == load_warning(None) == ""


def test_programs_that_were_busy_during_timing_are_told_on_the_page_and_in_prompts(
    pages: Client, team: Team, member: User
) -> None:
    run = make_finished_run(team, member)
    assert run.best_kernel is not None
    for evaluation in run.best_kernel.evaluations.all():  # the page shows the one that confirmed it
        evaluation.result["environment"] = {OTHERS_SHARE: 0.384}
        evaluation.save()
    result = run.best_kernel.evaluations.latest("pk").as_result()
    assert result is not None
    said = "Other programs used 38 % of the processors while this was timed."
    assert said in pages.get(f"/runs/{run.pk}/kernels/{run.best_kernel.number}/").content.decode()
    assert said in sections.timing(result)
    spec = JobSpec("1", problem=_bundle(), target="cpu", candidate=Source(Language.CPP, "x"))
    assert "other programs used 38 %" in table(spec, result)


def test_each_side_that_fails_says_what_is_left_of_the_comparison() -> None:
    def lines(status: Status, *failures: Failure) -> list[str]:
        return failure_lines(JobResult("j", status, failures=list(failures)))

    assert lines(Status.CORRECT, Failure("baseline", "start", "crashed.")) == [
        "Baseline: start crashed; there is no speedup."
    ]
    assert lines(Status.TIMEOUT, Failure("candidate", "check", "no answer within 60 s")) == [
        "Candidate: check: no answer within 60 s."
    ]
    assert lines(Status.TIMEOUT, Failure("candidate", "build", "build took 300 s")) == [
        "Candidate: build took 300 s."
    ]


def test_a_candidates_failure_that_the_reasons_tell_is_not_told_twice() -> None:
    failed = Failure("candidate", "build", "kernel.cpp:3:1: error")
    said = ["kernel.cpp:3:1: error\n 3 | this"]
    assert failure_lines(JobResult("j", Status.BUILD_FAILED, reasons=said, failures=[failed])) == []


def test_a_result_of_the_protocol_before_still_reads_and_shows(pages: Client, team: Team, member: User) -> None:
    run = make_finished_run(team, member)
    assert run.best_kernel is not None
    evaluation = run.best_kernel.evaluation
    new = ("call_speedup", "failures", "noise_floor", "memory")
    of_a_case = ("candidate_call_us", "baseline_call_us", "parent_call_us", "call_speedup", "call_speedup_low",
                 "call_speedup_high", "basis", "flags", "roofline_share")  # fmt: skip
    old = {name: value for name, value in evaluation.result.items() if name not in new} | {"protocol_version": 2}
    old["cases"] = [{n: v for n, v in case.items() if n not in of_a_case} for case in old["cases"]]
    old["speedup"] = {name: value for name, value in old["speedup"].items() if name != "basis"}
    evaluation.result = old
    evaluation.save()
    read = evaluation.as_readable_result()
    assert read is not None and read.protocol_version == 2
    assert pages.get(f"/runs/{run.pk}/kernels/{run.best_kernel.number}/").status_code == 200
    assert pages.get(f"/runs/{run.pk}/report.html").status_code == 200


def test_the_runners_own_table_names_both_times(team: Team) -> None:
    spec = JobSpec("1", problem=_bundle(), target="sm_90", candidate=Source(Language.CUDA, "x"))
    said = table(spec, on_a_gpu(spec))
    assert "device µs" in said and "call µs" in said and "by call time" in said
    assert "62 % of the measured ceiling" in said and "launch_bound" in said and "noisy machine" in said
    assert "call µs" not in table(spec, correct_result(spec, 10.0))


def _bundle() -> Any:
    from runners.problems import load

    return load("softmax_rows")
