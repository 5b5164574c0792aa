"""Test kernels that KernelBot measures: its results carry no build, so that of the site's own static build counts."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from optimizer.actions.target import do_sync_targets
from optimizer.agents import sections
from optimizer.loop import advance
from optimizer.models import Kernel, Run, Target, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.diff_change import change_between
from optimizer.queries.diff_sides import assemblies
from optimizer.queries.prediction import model_of, prediction_of
from optimizer.runs.history import history_of
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.runs.plan import plan_of
from optimizer.search.base import Draft
from runners.job import BuildReport, Effort, JobResult, JobSpec, KernelResources, Language, Source, Status
from runners.kernelbot.order import read_order
from runners.kernelbot.outcome import result_of
from tests.factories import drive, make_run
from tests.kernelbot_server import TIMED
from tests.kernelbot_server import run as kernelbot_run

pytestmark = pytest.mark.django_db
ORDER = read_order({}, target="gfx942", problem="fp8_block_gemm")
FEATURES = {"loop_instructions": 0.0, "instructions": 9.0, "store_bytes": 4.0, "stride_lines": 1.0}


def elsewhere(spec: JobSpec, **_more: Any) -> JobResult:
    """Build as this site does, and measure as KernelBot does: ten µs for each of the kernel's instructions."""
    amount = float(spec.candidate.text.split()[1])
    if spec.effort == Effort.BUILD:
        resources = KernelResources("k", vgpr=int(amount), features=FEATURES | {"vector": amount})
        listing = {"gfx942": f"v_add_f32 v{amount:g}"}
        build = BuildReport(True, 0.1, False, "k.hip:1: note: fine", kernels=[resources], assembly=listing)
        return JobResult(spec.job_id, Status.CORRECT, build=build)
    timed = TIMED | {f"benchmark.{number}.mean": str(10_000 * amount) for number in range(2)}
    runs = [kernelbot_run("benchmark") | {"result": timed}]
    answer = {"id": 1, "job": {"status": "succeeded"}, "runs": runs}
    return result_of(spec, ORDER, answer)


def add(run: Run, amount: int, *parents: str) -> Kernel:
    draft = Draft(f"k{amount}", Source(Language.HIP, f"// {amount}\n"), title=f"work {amount}", parent_keys=parents)
    return add_kernel(lock_run(run.pk), draft)


@pytest.fixture
def run(team: Team, member: User) -> Run:
    """Return a run with seven kernels that KernelBot has measured; each is the parent of the next."""
    do_sync_targets()
    run = make_run(
        team, member, target=Target.objects.get(key="gfx942"), strategy="external", budget=Budget(),
        dispatcher="kernelbot", settings={"warm_start": False},
    )  # fmt: skip
    advance(run.pk)
    run.kernels.all().delete()
    run.refresh_from_db()
    parents: tuple[str, ...] = ()
    for amount in (20, 30, 40, 60, 80, 120, 160):
        parents = (add(run, amount, *parents).key,)
    drive(run, elsewhere, rounds=1, queues=["build", "kernelbot.gfx942"])
    assert all(kernel.evaluation.result["build"] is None for kernel in run.kernels.all())
    return run


def test_times_are_predicted_from_the_sites_own_builds_of_what_kernelbot_measured(run: Run) -> None:
    late = add(run, 50)
    drive(run, elsewhere, rounds=1, queues=["build"])
    model, found = model_of(run), prediction_of(late)
    assert model is not None and len(model.rows) == 7
    assert found is not None and found.predicted.time_us == pytest.approx(500.0, rel=0.05)
    assert "No time is predicted" not in plan_of(run).note


def test_prompts_show_the_sites_own_build_of_what_kernelbot_measured(run: Run) -> None:
    history = history_of(run)
    last = history.kernel("k160")
    assert last is not None and last.correct
    assert sections.resources(last.result).endswith("- `k`: vgpr 160")
    assert "120 → 160" in sections.features(last, history)


def test_pages_show_the_sites_own_build_of_what_kernelbot_measured(run: Run, pages: Client) -> None:
    old, new = run.kernels.get(key="k120"), run.kernels.get(key="k160")
    page = pages.get(f"/runs/{run.pk}/kernels/{new.number}/").content.decode()
    assert "Vector registers (VGPR)" in page and "v_add_f32 v160" in page
    assert dict(assemblies(new)) == {"gfx942": "v_add_f32 v160"}
    registers = [one for one in change_between(old, new).resources if one.label == "Vector registers (VGPR)"]
    assert [(one.old, one.new) for one in registers] == [(120, 160)]
