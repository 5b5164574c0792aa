"""Test what a run says in advance of its device: predictions, device seconds, the queue's order, the budget."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.test import Client

from optimizer import queue
from optimizer.actions.target import do_sync_targets
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Evaluation, Job, Kernel, Run, RunState, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.device_time import _fitted
from optimizer.reports.plan import plan_table
from optimizer.runs import plan as planning
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.runs.plan import PlannedLine, Stage, plan_of
from optimizer.runs.turns import _by_cost
from optimizer.search.base import Draft
from optimizer.search.machinery.time_model import Prediction
from runners.job import BuildReport, Effort, JobResult, JobSpec, KernelResources, Language, Source
from runners.worker import work_once
from tests.driven_runs import copy_of
from tests.factories import correct_result, drive, make_run
from tests.optimizer.clients import Call

FEATURES = {"loop_instructions": 0.0, "instructions": 9.0, "store_bytes": 4.0, "stride_lines": 1.0}


@pytest.mark.parametrize(
    ("time_us", "spread"), [(50.0, 1.2), (90.0, 1.5), (100.0, 3.0), (150.0, 1.3), (400.0, 1.1)]
)
def test_expected_improvement_is_the_mean_share_of_time_saved(time_us: float, spread: float) -> None:
    predicted = Prediction(time_us, time_us / spread, time_us * spread, 9)
    deviation = math.log(spread) / 1.2815515655446004
    at = np.linspace(-9, 9, 200_001)
    times = np.exp(math.log(time_us / 100.0) + deviation * at)
    density = np.exp(-at * at / 2) / math.sqrt(2 * math.pi)
    expected = float(np.sum(np.maximum(0.0, 1 - times) * density) * (at[1] - at[0]))
    assert predicted.improvement(100.0) == pytest.approx(expected, abs=1e-5)


def test_device_time_grows_with_the_kernels_time_and_one_outlier_does_not_move_it() -> None:
    rows = [(10.0 + 0.02 * us, us) for us in (50.0, 80.0, 100.0, 200.0, 300.0, 500.0)]
    found = _fitted([*rows, (300.0, 90.0)], [25.0, 27.0], "this run")
    assert found.seconds(1000.0) == pytest.approx(30.0, rel=0.05)
    assert found.confirmation_s == 26.0
    assert found.seconds(None) == found.typical_s


def test_few_evaluations_tell_the_median_alone() -> None:
    found = _fitted([(10.0, 100.0), (12.0, 500.0), (11.0, 50.0)], [], "this run")
    assert found.seconds(10_000.0) == found.seconds(None) == found.confirmation_s == 11.0


# The budget


@pytest.mark.django_db
def test_a_run_stops_by_itself_before_its_device_minutes_are_exceeded() -> None:
    # Eight kernels at a time: without what open ones will take, the budget would be exceeded by seven of them.
    run = make_run(budget=Budget(device_minutes=0.52), settings={"concurrency": 8, "sampler": "random"})
    drive(run)
    assert run.state == RunState.FINISHED
    assert "not enough for another evaluation (1.5 s) and the confirmation (1.5 s)" in run.stop_reason
    assert 28.0 < run.spent_device_s <= 31.2
    assert run.kernels.filter(evaluations__effort=Effort.CONFIRM.value).exists()


@pytest.mark.django_db
def test_without_a_budget_of_device_time_nothing_is_kept_back() -> None:
    run = make_run(budget=Budget(evaluations=4), settings={"sampler": "random"})
    drive(run)
    assert run.spent_evaluations == 4 and "used up" in run.stop_reason


@pytest.mark.django_db
def test_a_run_that_used_up_its_device_minutes_continues_with_more_of_them() -> None:
    run = make_run(budget=Budget(device_minutes=0.2), settings={"sampler": "random"})
    drive(run)
    assert run.state == RunState.FINISHED
    call_command("run", "--continue", run.pk, "--device-minutes", "0.5", stdout=io.StringIO())
    run.refresh_from_db()
    assert run.budget_device_minutes == 0.5 and not run.state_choice.is_terminal


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "evaluations"),
    [(["--device-minutes", "5"], None), (["--device-minutes", "5", "--evaluations", "7"], 7), ([], 40)],
)
def test_a_budget_of_device_minutes_replaces_the_strategys_own_number_of_evaluations(
    options: list[str], evaluations: int | None
) -> None:
    call_command("run", "--problem", "softmax_rows", *options, stdout=io.StringIO())
    assert Run.objects.get().budget_evaluations == evaluations


# The plan and the queue


def draft(amount: int) -> Draft:
    """Return a kernel whose work and time are proportional to `amount`."""
    return Draft(f"k{amount}", Source(Language.HIP, f"// {amount}\n"), title=f"work {amount}")


def measure(spec: JobSpec, **_more: Any) -> JobResult:
    """Answer as a compiler and a device would: `amount` instructions, and ten times as many µs."""
    if spec.candidate.language != Language.HIP or not spec.candidate.text.startswith("// "):
        return correct_result(spec, 200.0)
    amount = float(spec.candidate.text.split()[1])
    result = correct_result(spec, 10 * amount, baseline_us=5000.0)
    features = FEATURES | {"vector": amount}
    return replace(
        result, build=BuildReport(True, 0.1, False, "", kernels=[KernelResources("k", features=features)])
    )


def run_of(team: Team, member: User | None = None, **changes: Any) -> Run:
    do_sync_targets()
    changes = {"target": Target.objects.get(key="gfx942"), "strategy": "external", "budget": Budget()} | changes
    run = make_run(team, member, settings={"warm_start": False}, **changes)
    advance(run.pk)
    run.kernels.all().delete()
    run.refresh_from_db()
    return run


@pytest.fixture
def busy(team: Team, member: User) -> Run:
    """Return a run with seven measured kernels, and three that were built and wait for the device, the worst first."""

    def make(team: Team, user: User | None) -> Iterator[Run]:
        run = run_of(team, user, budget=Budget(device_minutes=15.5 / 60))
        for amount in (20, 30, 40, 60, 80, 120, 160):
            add_kernel(lock_run(run.pk), draft(amount))
        drive(run, measure, rounds=1, queues=["build", "bench.gfx942"])
        for amount in (150, 50, 12):
            add_kernel(lock_run(run.pk), draft(amount))
        while work_once(DatabaseJobSource(), "build", "builder", measure):
            pass
        yield run

    return Run.objects.get(pk=copy_of("busy", make, team, member))


@pytest.mark.django_db
def test_what_is_worth_most_for_the_device_goes_first_and_other_runs_keep_their_turn(busy: Run, team: Team) -> None:
    assert claimed() == ["work 12", "work 50", "work 150"]


@pytest.mark.django_db
def test_a_runs_order_does_not_let_it_overtake_another_run(busy: Run, team: Team) -> None:
    mine = list(Job.objects.filter(queue="bench.gfx942", state="queued").order_by("pk"))
    other = run_of(team)
    add_kernel(lock_run(other.pk), Draft("p", Source(Language.PYTHON, "x = 1"), title="another run"))
    add_kernel(lock_run(busy.pk), draft(11))
    while work_once(DatabaseJobSource(), "build", "builder", measure):
        pass
    assert len(mine) == 3
    assert claimed() == ["work 11", "work 12", "work 50", "another run", "work 150"]


@pytest.mark.django_db
def test_before_a_model_exists_the_rules_of_the_hardware_rank_what_waits(team: Team, member: User) -> None:
    run = run_of(team, member)
    add_kernel(lock_run(run.pk), Draft("p", Source(Language.PYTHON, "x = 1"), title="not built here"))
    for amount in (150, 50, 30, 12):
        add_kernel(lock_run(run.pk), draft(amount))
    while work_once(DatabaseJobSource(), "build", "builder", measure):
        pass
    plan = plan_of(Run.objects.get(pk=run.pk))
    assert all(line.predicted is None and line.improvement is None for line in plan.lines)
    assert "the rules of the hardware" in plan.note
    # What has no machine code counts as the usual kernel.
    order = ["work 12", "work 30", "not built here", "work 50", "work 150"]
    assert [line.title for line in plan.lines] == order == claimed()


def test_the_rules_compare_a_kernel_of_an_unknown_launch_as_if_it_launched_as_much_as_the_others() -> None:
    work = {"flops": 100.0, "vector": 60.0, "instructions": 100.0, "loop_instructions": 0.0}
    told = [{**work, "load": loads, "programs": 4096.0} for loads in (8.0, 24.0)]
    cuda = {**work, "load": 16.0}
    ranks = _by_cost([PlannedLine("", None, Stage.QUEUED, "", figures=one) for one in (*told, cuda)])
    assert ranks[0] < ranks[2] < ranks[1], "no kernel is cheap because its launch is not known"


@pytest.mark.django_db
def test_a_plan_of_kernels_without_machine_code_names_no_rules(team: Team) -> None:
    run = run_of(team)
    add_kernel(lock_run(run.pk), Draft("p", Source(Language.PYTHON, "x = 1")))
    note = plan_of(Run.objects.get(pk=run.pk)).note
    assert "No time is predicted" in note and "rules" not in note


def claimed() -> list[str]:
    """Claim every job of the device's queue, and return the titles of their kernels in that order."""
    found = []
    while claim := queue.claim("bench.gfx942", "device"):
        found.append(Kernel.objects.get(evaluations__job=claim.job_id).title)
    return found


@pytest.mark.django_db
def test_page_api_and_command_line_show_the_same_plan(busy: Run, pages: Client, api: Call) -> None:
    plan = plan_of(busy)
    assert [line.title for line in plan.lines] == ["work 12", "work 50", "work 150"]
    first, _, last = plan.lines
    assert first.stage == Stage.QUEUED and first.predicted is not None
    assert first.improvement is not None and last.improvement is not None
    assert first.predicted.time_us == pytest.approx(120.0, rel=0.01)
    assert first.improvement > 0.2 > last.improvement
    # Seven times 1.5 s are spent, 5 s are left, and each of the three takes 1.5 s.
    assert [line.fits for line in plan.lines] == [True, True, True] and plan.left_s == pytest.approx(5.0)

    page = pages.get(f"/runs/{busy.pk}/plan/").content.decode()
    assert page.index("work 12") < page.index("work 50") < page.index("work 150")
    assert f"{100 * first.improvement:.1f} %" in page and "5.0 s of device time are left" in page

    answer = api("GET", f"/runs/{busy.pk}/plan").json()
    assert [line["title"] for line in answer["lines"]] == ["work 12", "work 50", "work 150"]
    assert answer["lines"][0]["improvement"] == pytest.approx(first.improvement)

    out = io.StringIO()
    call_command("plan", str(busy.pk), stdout=out)
    assert out.getvalue().strip() == plan_table(plan).strip()
    out = io.StringIO()
    call_command("plan", str(busy.pk), "--json", stdout=out)
    assert json.loads(out.getvalue()) == answer


@pytest.mark.django_db
def test_what_does_not_fit_into_the_budget_is_marked(busy: Run, pages: Client) -> None:
    Run.objects.filter(pk=busy.pk).update(budget_device_minutes=13.6 / 60)
    busy.refresh_from_db()
    assert [line.fits for line in plan_of(busy).lines] == [True, True, False]
    assert "Beyond the budget" in pages.get(f"/runs/{busy.pk}/plan/").content.decode()


@pytest.mark.django_db
def test_the_plan_of_a_run_that_has_ended_reads_no_builds(busy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Run] = []
    monkeypatch.setattr(planning, "model_of", read.append)
    assert plan_of(busy).lines and read == [busy]
    Run.objects.filter(pk=busy.pk).update(state=RunState.FINISHED)
    busy.refresh_from_db()
    found = plan_of(busy)
    assert found.lines == [] and found.note == "" and read == [busy]


@pytest.mark.django_db
def test_a_run_without_a_best_kernel_is_compared_with_no_other_runs_time(busy: Run, team: Team) -> None:
    repeated = busy.best_kernel.evaluation  # type: ignore[union-attr]
    Evaluation.objects.filter(pk=repeated.pk).update(first_of=None)  # as a repetition is stored
    fresh = make_run(team)
    assert fresh.best_kernel_id is None and planning.Forecast(fresh).best_us is None


@pytest.mark.django_db
def test_a_run_that_has_not_begun_names_its_seeds(team: Team) -> None:
    run = make_run(team, budget=Budget(device_minutes=5))
    found = plan_of(run)
    assert found.lines and all(line.stage == Stage.NEXT and "seed" in line.why for line in found.lines)
    assert "not known before an evaluation has ended" in plan_table(found)


@pytest.mark.django_db
def test_the_next_configurations_of_a_tuning_are_named_before_they_are_sent(team: Team) -> None:
    run = make_run(team, settings={"sampler": "random"})
    drive(run, rounds=1)
    advance(run.pk)
    planned = [line for line in plan_of(run).lines if line.stage == Stage.NEXT]
    assert planned and all(line.why == "chosen by the sampler random" for line in planned)
    assert len({line.title for line in planned}) == len(planned)
    assert Evaluation.objects.filter(kernel__run=run).exists()


@pytest.mark.django_db
def test_the_command_says_in_advance_what_a_run_with_device_minutes_sends() -> None:
    out = io.StringIO()
    call_command("run", "--problem", "softmax_rows", "--device-minutes", "5", "--evaluations", "3", stdout=out)
    assert "seed of the problem" in out.getvalue() and "300.0 s of device time are left" in out.getvalue()
    assert Run.objects.get().budget_device_minutes == 5
