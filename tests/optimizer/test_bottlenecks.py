"""Test that what limits a kernel is named by all that was measured of it, in the words of the knowledge pages."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.agents.knowledge import bottlenecks_of
from optimizer.knowledge import Task, pages_for
from optimizer.knowledge.library import BOTTLENECKS
from optimizer.search.base import KernelView
from runners.job import BuildReport, CaseResult, Flag, JobResult, KernelResources, Language, Source, Status


def counted(details: dict[str, Any] | None = None, **figures: Any) -> JobResult:
    """Return a result whose longest kernel a profiler saw like this."""
    top = {"name": "k", "launches": 1, "time_us": 100.0, **figures, "details": details or {}}
    other = {"name": "o", "launches": 1, "time_us": 1.0, "details": {"bank_conflict_percent": 90.0}}
    return JobResult("j", Status.CORRECT, profile={"kernels": {"tool": "ncu", "top": [top, other]}})


def built(**figures: Any) -> JobResult:
    build = BuildReport(True, 1.0, False, "", kernels=[KernelResources("k", **figures)])
    return JobResult("j", Status.CORRECT, build=build)


def timed(device_us: float, call_us: float | None, *flags: Flag) -> JobResult:
    case = CaseResult("c", True, candidate_us=device_us, candidate_call_us=call_us, flags=list(flags))
    return JobResult("j", Status.CORRECT, cases=[case])


def on_cpu(cores_busy: float, threads: int) -> JobResult:
    top = {"name": "the whole process", "launches": 1, "time_us": 100.0, "details": {"cores_busy": cores_busy}}
    profile = {"kernels": {"tool": "perf", "top": [top]}}
    return JobResult("j", Status.CORRECT, profile=profile, environment={"threads": threads})


def named(result: JobResult) -> frozenset[str]:
    kernel = KernelView("k", 1, (), "seed", Source(Language.CUDA, ""), True, Status.CORRECT, result)
    return bottlenecks_of(kernel)


SIGNS = [
    ("compute", JobResult("j", Status.CORRECT, profile={"bound": "compute"})),
    ("memory", JobResult("j", Status.CORRECT, profile={"bound": "memory"})),
    ("latency", JobResult("j", Status.CORRECT, profile={"bound": "latency"})),
    ("registers", built(vgpr_spills=3)),
    ("occupancy", built(occupancy=2)),
    ("shared memory", counted({"bank_conflict_percent": 12.0})),
    ("shared memory", counted({"stalled_short_scoreboard": 6.0, "stalled_long_scoreboard": 2.0})),
    ("shared memory", counted({"stalled_mio_throttle": 6.0, "stalled_wait": 2.0})),
    ("shared memory", built(features={"lds_conflict_ways": 8.0})),
    ("launch", timed(10.0, 16.0)),
    ("launch", timed(10.0, None, Flag.LAUNCH_BOUND)),
    ("launch", timed(10.0, None, Flag.HOST_BOUND)),
    ("launch", counted(launches=40)),
    ("load balance", counted({"warps_active_percent": 6.2}, bound="latency")),
    ("load balance", counted({"occupancy_percent": 6.2}, bound="latency")),
    ("load balance", on_cpu(cores_busy=1.0, threads=4)),
]


@pytest.mark.parametrize(("word", "result"), SIGNS)
def test_a_limit_is_named_where_it_was_measured(word: str, result: JobResult) -> None:
    assert named(result) == {word} | ({"latency"} if word == "load balance" and on_gpu(result) else set())


def on_gpu(result: JobResult) -> bool:
    return bool(result.profile["kernels"]["tool"] == "ncu")


def test_every_limit_of_the_pages_can_be_named() -> None:
    assert {word for word, _ in SIGNS} == BOTTLENECKS


@pytest.mark.parametrize(
    "result",
    [
        counted({"bank_conflict_percent": 3.0}),
        counted({"stalled_long_scoreboard": 6.0, "stalled_short_scoreboard": 2.0}),
        counted({"bank_conflict_percent": "90", "stalled_short_scoreboard": None, "warps_active_percent": []}),
        counted({"warps_active_percent": 14.6}),
        counted(launches=40, time_us=4000.0),
        counted(launches="40", time_us=None),
        built(features={"lds_conflict_ways": 2.0}),
        timed(10.0, 11.0),
        on_cpu(cores_busy=3.8, threads=4),
        on_cpu(cores_busy=1.0, threads=1),
        JobResult("j", Status.CORRECT, profile={"kernels": {"top": "hostile"}}),
        JobResult("j", Status.CORRECT, profile={"kernels": {"top": ["hostile"]}}),
    ],
)
def test_nothing_is_named_below_the_limits_or_in_another_form_than_the_harness_writes(result: JobResult) -> None:
    assert named(result) == frozenset()


@pytest.mark.parametrize(
    ("target", "language", "text", "result", "page"),
    [
        ("gfx942", Language.HIP, "bf16 matmul", built(features={"lds_conflict_ways": 8.0}), "gfx942/lds_swizzle"),
        ("sm_80", Language.CUDA, "GELU", counted({"bank_conflict_percent": 30.0}), "sm_80/swizzled_shared_memory"),
        ("sm_80", Language.TRITON, "grouped GEMM of experts", timed(10.0, 40.0), "gpu/grouped_gemm"),
    ],
)
def test_a_page_against_a_measured_limit_is_among_the_first(
    target: str, language: Language, text: str, result: JobResult, page: str
) -> None:
    task = Task(text, target, language, named(result))
    assert page in {one.name for one in pages_for(task)[:2]}
