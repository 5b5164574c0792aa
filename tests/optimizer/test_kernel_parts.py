"""Test parts of a kernel's page: registers against the parent's, roofs, flags in words; and the board's bars."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from django.test import Client

from optimizer.charts.hypotheses import calibration
from optimizer.charts.roofline import positions, roofline
from optimizer.models import Hypothesis, LlmCall
from optimizer.queries.intervals import geometric_mean, share
from optimizer.queries.kernel_resources import pairs_of, resource_rows
from optimizer.views.hypotheses import Figures, figures_of, range_bar, scale_of
from optimizer.views.kernel_flags import determinism, observations
from runners.job import BuildReport, CaseResult, JobResult, JobSpec, KernelResources, Status
from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from runners.targets import TARGETS, Ceilings
from tests.driven_runs import make_finished_run
from tests.factories import correct_result, drive, make_run, make_team, make_user


def report(*kernels: KernelResources) -> BuildReport:
    return BuildReport(ok=True, seconds=1.0, cached=False, log="", kernels=list(kernels))


def result(*flags: str) -> JobResult:
    return JobResult(job_id="1", status=Status.CORRECT, flags=list(flags), cases=[CaseResult("a", ok=True)])


def test_registers_are_told_with_their_change_against_the_parent() -> None:
    now = report(KernelResources("k", vgpr=72, lds_bytes=1024, extra={"waves": 4}))
    before = report(KernelResources("k", vgpr=80, lds_bytes=1024))
    rows = {row.label: row.values[0] for row in resource_rows(now, before)}
    assert (rows["Vector registers (VGPR)"].value, rows["Vector registers (VGPR)"].change) == (72, -8)
    assert rows["LDS or shared memory, bytes"].change is None
    assert (rows["waves"].value, rows["waves"].change) == (4, None)


def test_device_kernels_are_matched_by_name_and_strangers_are_not_compared() -> None:
    now = report(KernelResources("b", vgpr=10), KernelResources("c", vgpr=20))
    before = report(KernelResources("a", vgpr=1), KernelResources("b", vgpr=4))
    (row,) = resource_rows(now, before)
    assert [figure.change for figure in row.values] == [6, None]


def test_a_point_lies_at_its_work_over_its_time_and_below_the_roof() -> None:
    problem, target = open_bundle(load("matmul_bias_gelu")), TARGETS["gfx942"]
    case = problem.cases("gfx942", Purpose.BENCHMARK)[0]
    work = problem.work(case)
    assert work is not None
    (placed,) = positions(problem, target, [CaseResult(case.name, ok=True, candidate_us=100.0)])
    assert placed.flops_per_s == pytest.approx(sum(work.flops.values()) * 1e4)
    assert placed.intensity == pytest.approx(sum(work.flops.values()) / work.bytes)
    figure = json.loads(roofline(target, [placed], Ceilings(copy_bandwidth=4e12)).to_json())
    names = [trace["name"] for trace in figure["data"]]
    assert names[-1] == "Cases" and names[0].endswith("data sheet")
    assert names[1].endswith("measured")
    assert max(figure["data"][0]["y"]) <= target.peak_flops[placed.dtype]


def test_a_case_that_was_not_timed_or_is_not_the_problems_has_no_point() -> None:
    problem = open_bundle(load("softmax_rows"))
    known = problem.cases("cpu", Purpose.BENCHMARK)[0].name
    cases = [CaseResult(known, ok=True), CaseResult("invented", ok=True, candidate_us=1.0)]
    assert positions(problem, TARGETS["cpu"], cases) == []


def test_flags_are_told_in_words_and_unknown_ones_as_they_are() -> None:
    found = observations(result("not_timed", "kernelguard:TIMER_MONKEYPATCH", "brand_new", "unconfirmed"))
    assert [one.tone for one in found] == ["warn", "warn", "muted", "muted"]
    assert "kernelguard suspects" in found[0].text and found[1].text.startswith("Not confirmed")
    assert found[-1].text == "brand new"


def test_determinism_is_claimed_only_of_what_was_checked() -> None:
    assert determinism(result()).startswith("bit for bit")
    assert determinism(result("nondeterministic")) == "not deterministic"
    assert determinism(JobResult(job_id="1", status=Status.BUILD_FAILED)) == ""


def test_a_prediction_is_a_bar_and_a_measurement_a_point_on_one_scale() -> None:
    rows = [Hypothesis(predicted_min=0, predicted_max=50, measured_gain=25), Hypothesis(measured_gain=-50)]
    scale = scale_of(gain for row in rows for gain in (row.predicted_min, row.predicted_max, row.measured_gain))
    assert scale == (-50.0, 50.0) and scale_of([3.0, None]) == (0.0, 3.0)
    bar, point = (range_bar(row, scale) for row in rows)
    assert bar is not None and point is not None and bar.measured is not None
    assert bar.zero == bar.left == pytest.approx(80) and bar.left < bar.measured < bar.left + bar.span
    assert (point.span, point.measured) == (0.0, 6.0)
    assert range_bar(Hypothesis(), scale) is None


@pytest.mark.django_db
def test_the_figures_of_a_round_are_summed_up_with_gains_that_nobody_knows_left_out() -> None:
    run = make_run()
    gains = [(0, 50, 25), (None, None, -60), (-5, 10, None), (None, None, None)]
    for key, (low, high, measured) in enumerate(gains):
        known = {"predicted_min": low, "predicted_max": high, "measured_gain": measured}
        Hypothesis.objects.create(run=run, key=f"h{key}", round=1 + key // 3, title="t", **known)
    assert set(figures_of(run)) == {Figures(1, 3, 2, -60.0, 50.0), Figures(2, 1, 0, None, None)}


def test_the_calibration_plot_has_a_mark_for_each_role_and_model() -> None:
    calls = [LlmCall(role="plan", model="m"), LlmCall(role="plan", model="n")]
    rows = [Hypothesis(title="t", call=call, predicted_min=0, predicted_max=20, measured_gain=5) for call in calls]
    assert [trace.name for trace in calibration([*rows, Hypothesis()]).data] == ["plan m", "plan n", "As predicted"]
    assert list(calibration([Hypothesis()]).data) == []


def test_a_share_has_wilsons_interval() -> None:
    found = share(8, 10)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((80.0, 49.0, 94.3), abs=0.1)
    assert share(0, 0) is None
    nothing = share(0, 5)
    assert nothing is not None and nothing.low == 0 and 40 < nothing.high < 50


def test_a_geometric_mean_lies_within_its_interval_which_is_the_same_each_time() -> None:
    found = geometric_mean([1.0, 2.0, 4.0])
    assert found is not None and found.value == pytest.approx(2.0) and found.low < 2.0 < found.high
    assert geometric_mean([1.0, 2.0, 4.0]) == found
    assert geometric_mean([]) is None


@pytest.mark.django_db
def test_a_stranger_gets_none_of_the_charts(client: Client) -> None:
    run = make_finished_run()
    client.force_login(make_user(make_team()))
    for part in ("kernels/1/roofline/", "workers/", "hypotheses/chart/?axis=calibration"):
        assert client.get(f"/runs/{run.pk}/{part}").status_code == 404


@pytest.mark.django_db
def test_a_chart_that_there_is_not_is_no_address(client: Client) -> None:
    team = make_team()
    run = make_finished_run(team)
    client.force_login(make_user(team))
    assert client.get(f"/runs/{run.pk}/hypotheses/chart/?axis=x").status_code == 404
    assert client.get(f"/runs/{run.pk}/kernels/1/roofline/").status_code == 404
    assert client.get(f"/runs/{run.pk}/hypotheses/chart/?axis=calibration").status_code == 200


@pytest.mark.django_db
def test_what_the_profiler_saw_is_told_and_a_kernels_name_is_no_markup(client: Client) -> None:
    team = make_team()
    kernels = {
        "tool": "ncu",
        "top": [{"name": "<script>", "launches": 1, "time_us": 5.0, "bound": "memory",
                 "compute_share": 0.2, "memory_share": 0.87}],
        "notes": ["perf: no counters here"],
    }  # fmt: skip

    def profiled(spec: JobSpec, **more: object) -> JobResult:
        return replace(correct_result(spec, 100.0), profile={"kernels": kernels})

    run = drive(make_run(team), profiled)
    client.force_login(make_user(team))
    page = client.get(f"/runs/{run.pk}/kernels/1/").content.decode()

    assert "5 µs a call in 1 launch of &lt;script&gt;: bound by memory" in page
    assert "87% of the memory by ncu&#x27;s counters" in page and "perf: no counters here" in page


def test_device_kernels_are_paired_by_name_and_two_lone_ones_always() -> None:
    def built(*names: str) -> BuildReport:
        return report(*map(KernelResources, names))

    def paired(now: BuildReport, before: BuildReport) -> list[tuple[str, str | None]]:
        return [(one.name, other.name if other else None) for one, other in pairs_of(now, before)]

    assert paired(built("a<4>"), built("a<8>")) == [("a<4>", "a<8>")]
    assert paired(built("a", "b"), built("b")) == [("a", None), ("b", "b")]
    assert paired(built("a"), built("b", "a")) == [("a", "a")]


def test_constants_of_a_triton_kernel_are_figures_of_their_own_with_their_changes() -> None:
    before, now = (
        report(KernelResources("k", extra={"constants": {"BLOCK": block, "num_warps": 4}, "num_warps": 4}))
        for block in (64, 128)
    )
    rows = {row.label: row.values[0] for row in resource_rows(now, before)}
    assert (rows["BLOCK"].value, rows["BLOCK"].change) == (128, 64)
    assert (rows["num warps"].value, rows["num warps"].change) == (4, None)
    assert "constants" not in rows


def test_vector_instructions_have_a_row_for_each_width() -> None:
    built = report(KernelResources("k", extra={"vector_instructions": {"128": 162, "256": 341}, "waves": 4}))
    rows = {row.label: row.values[0].value for row in resource_rows(built, None)}
    assert rows == {"vector instructions 128": 162, "vector instructions 256": 341, "waves": 4}


def test_a_figure_replaces_a_constant_of_the_same_name_in_any_order() -> None:
    extra = {"num_warps": 8, "constants": {"num_warps": 4}}
    built = report(KernelResources("k", extra=extra))
    assert [row.values[0].value for row in resource_rows(built, None)] == [8]
