"""Test which workers are known: queues, names, devices, heartbeats, and what a run says when nobody is there."""

from __future__ import annotations

import datetime as dt
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from optimizer.actions.runner import do_drain_runner, do_undrain_runner
from optimizer.actions.target import do_sync_targets
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Evaluation, Job, JobState, Run, Runner, Target
from optimizer.queries.runners import absence_of_runners, live_runners
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.search.base import Draft
from optimizer.upkeep.sweep import sweep
from runners.backends import software
from runners.backends.cpp import compiler_version
from runners.dispatch import DISPATCHERS
from runners.dispatch import card as cards
from runners.dispatch.card import card_of
from runners.harness.timing.environment import describe
from runners.job import BuildReport, Effort, JobResult, JobSpec, KernelResources, Language, Source, Status
from runners.job_source import Claim, RunnerCard
from runners.targets import CPUINFO, TARGETS, processor_name
from runners.tasks import target_of
from runners.worker import work_once
from tests.factories import make_run, make_user


def check_in(name: str = "mi300-0@box", target: str = "gfx942", queue: str = "bench.gfx942") -> Runner:
    do_sync_targets()
    DatabaseJobSource().check_in(RunnerCard(name, target, (queue,)))
    return Runner.objects.get(name=name)


@pytest.mark.parametrize("dispatcher", ["celery", "kernelbot"])
def test_a_worker_measures_the_target_of_its_queue(dispatcher: str) -> None:
    queue = DISPATCHERS[dispatcher].queue_for("gfx942", Effort.FULL)
    assert target_of(["agents", queue]) == "gfx942"
    assert target_of(["agents", "build"]) is None


def test_static_builds_wait_on_a_queue_that_any_machine_may_serve() -> None:
    assert DISPATCHERS["celery"].queue_for("gfx942", Effort.BUILD) == "build"
    assert DISPATCHERS["celery"].queue_for("gfx942", Effort.CONFIRM) == "bench.gfx942"


def test_two_workers_of_one_box_say_which_device_each_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cards.VISIBLE_DEVICES:
        monkeypatch.delenv(name, raising=False)
    seen = []
    for index in ("0", "1"):
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", index)
        seen.append(card_of(f"mi300-{index}@box", "gfx942", ["bench.gfx942"]))
    assert [card.facts["visible_devices"] for card in seen] == ["HIP_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"]
    assert "MI300X" in seen[0].device
    assert seen[0].sandbox


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nflags : avx\n",
            "AMD EPYC 9654 96-Core Processor",
        ),
        ("processor : 0\nBogoMIPS : 50\n\nModel : Raspberry Pi 5 Model B\n", "Raspberry Pi 5 Model B"),
        ("processor : 0\n", platform.processor() or platform.machine()),
    ],
)
def test_a_processor_calls_itself_by_its_model(text: str, name: str, tmp_path: Any) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert processor_name(tmp_path / "cpuinfo") == name


def test_a_card_names_the_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"gpu_data": [{"asic": {"market_name": "AMD Instinct MI300X OAM"}}]}
    monkeypatch.setattr(cards, "gpu_fixed", lambda target: {"amd_smi_static": told})
    assert card_of("box", "gfx942", []).device == "AMD Instinct MI300X OAM"
    monkeypatch.setattr(cards, "gpu_fixed", lambda target: {"gpu": "NVIDIA H100 80GB HBM3"})
    assert card_of("box", "sm_90", []).device == "NVIDIA H100 80GB HBM3"
    monkeypatch.undo()
    assert card_of("box", "cpu", []).device == processor_name(CPUINFO)


@pytest.mark.parametrize(
    ("name", "text", "driver"),
    [
        ("nvidia", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27", "nvidia 580.65.06"),
        ("amdgpu", "6.12.12\n", "amdgpu 6.12.12"),
    ],
)
def test_the_drivers_version_is_on_the_card(
    name: str, text: str, driver: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(software, "DRIVERS", {name: tmp_path / "version"})
    assert software.driver() == driver


def test_the_versions_on_which_speed_depends_are_on_the_card_and_in_results() -> None:
    found = card_of("box", "cpu", []).facts["software"]
    assert found == describe(TARGETS["cpu"])["software"]
    assert found["torch"] == version("torch")
    assert re.search(r"\d+\.\d+", found["compiler"])
    assert "driver" not in found


def test_the_version_of_nvcc_is_its_release_and_not_its_title(tmp_path: Path) -> None:
    compiler = tmp_path / "nvcc"
    said = (
        "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.9, V12.9.41\nBuild cuda_12.9\n"
    )
    compiler.write_text(f"#!/bin/sh\ncat <<END\n{said}END\n")
    compiler.chmod(0o755)
    assert compiler_version(str(compiler)) == "Cuda compilation tools, release 12.9, V12.9.41"


@pytest.mark.django_db
def test_a_runner_is_live_on_its_own_queue_only() -> None:
    check_in()
    assert live_runners("gfx942", "celery").count() == 1
    assert not live_runners("gfx942", "kernelbot").exists()
    assert not live_runners("sm_90", "celery").exists()


@pytest.mark.django_db
def test_a_runner_that_is_silent_or_drains_is_not_live() -> None:
    runner = check_in()
    do_drain_runner(make_user(), runner, "new driver")
    assert not live_runners("gfx942", "celery").exists()
    do_undrain_runner(make_user(), runner)
    assert live_runners("gfx942", "celery").exists()
    Runner.objects.update(heartbeat_at=timezone.now() - dt.timedelta(minutes=2))
    assert not live_runners("gfx942", "celery").exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("dispatcher", "how"),
    [("celery", "--queue bench.gfx942"), ("spool", "spool sync"), ("kernelbot", "kernelbot.gfx942")],
)
def test_where_nobody_is_there_a_person_is_told_how_to_get_somebody(dispatcher: str, how: str) -> None:
    assert how in absence_of_runners("gfx942", dispatcher)
    check_in(queue=DISPATCHERS[dispatcher].queue_for("gfx942", Effort.FULL))
    assert absence_of_runners("gfx942", dispatcher) == ""


@pytest.fixture
def lonely(db: None) -> Run:
    """Return a run on an MI300 that nobody serves, with one HIP kernel."""
    do_sync_targets()
    run = make_run(target=Target.objects.get(key="gfx942"))
    advance(run.pk)
    run.kernels.all().delete()
    add_kernel(lock_run(run.pk), Draft("k", Source(Language.HIP, "__global__ void k() {}")))
    return run


def test_without_a_runner_kernels_are_built_and_their_resources_known_before_a_device_minute(lonely: Run) -> None:
    def build(spec: JobSpec, **_more: Any) -> JobResult:
        report = BuildReport(True, 0.5, False, "", kernels=[KernelResources("k", vgpr=64, occupancy=8)])
        return JobResult(spec.job_id, Status.CORRECT, build=report)

    assert work_once(DatabaseJobSource(), "build", "builder", build)
    built = Evaluation.objects.get(kernel__run=lonely, effort=Effort.BUILD.value)
    assert built.result["build"]["kernels"][0]["vgpr"] == 64
    assert built.device_s == 0
    assert Job.objects.get(queue="bench.gfx942").state == JobState.QUEUED


def test_jobs_without_a_runner_wait_without_expiring(lonely: Run) -> None:
    Job.objects.update(created_at=timezone.now() - dt.timedelta(days=90), queue="bench.gfx942")
    sweep()
    assert set(Job.objects.values_list("state", "attempts")) == {(JobState.QUEUED, 0)}


def test_notes_of_a_job_outlive_its_worker_and_count_attempts_anew(lonely: Run) -> None:
    source = DatabaseJobSource()
    claim = source.claim("build", "one")
    assert claim is not None and claim.notes == {}
    assert source.note(claim, {"id": 5}, attempts=1)
    Job.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    again = source.claim("build", "two")
    assert again is not None and again.notes == {"id": 5}
    assert not source.note(claim, {"id": 6}, attempts=1)
    assert source.note(again, {"id": 5}, attempts=1)
    assert Job.objects.get().attempts == 1


def test_a_claim_brings_the_runs_settings_for_its_dispatcher(lonely: Run) -> None:
    Run.objects.update(dispatch_settings={"mode": "test"})
    claim = DatabaseJobSource().claim("build", "one")
    assert isinstance(claim, Claim) and claim.settings == {"mode": "test"}


@pytest.mark.django_db
def test_being_alone_is_given_back_and_asked_for_again() -> None:
    source = DatabaseJobSource()
    for _ in range(2):
        with source.alone("kernelbot:x") as mine:
            assert mine


@pytest.mark.django_db
def test_settings_that_a_dispatcher_does_not_know_stop_the_start() -> None:
    with pytest.raises(ValidationError, match="rank"):
        make_run(dispatcher="kernelbot", dispatch_settings={"mode": "rank"})
    with pytest.raises(ValidationError, match="speed"):
        make_run(dispatch_settings={"speed": 1})
