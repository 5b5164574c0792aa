"""Test that prompts about a kernel hold what compiler and profiler found out of it, where there is any."""

from __future__ import annotations

from dataclasses import replace

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.search.base import History, KernelView, StrategySettings
from runners.job import BuildReport, JobResult, KernelResources, Status
from tests.optimizer.simulated_run import seed

CASES = {"big": {"bound": "memory", "time_us": 10.0, "compute_share": 0.08, "memory_share": 0.71,
                 "bytes_per_s": 3.7e12, "flop_per_s": 1e14}}  # fmt: skip


def shown(result: JobResult | None) -> str:
    kernel: KernelView = replace(seed("k", 10.0, 1), result=result)
    return sections.kernel(
        kernel, History(None, "gfx942", StrategySettings(), 1, [kernel]), Delimiters("m"), "Base"
    )


def test_registers_memory_spills_and_what_binds_a_case_are_told() -> None:
    used = KernelResources(
        "gemm", vgpr=128, agpr=64, lds_bytes=32768, vgpr_spills=3, occupancy=2, matrix_instructions=8
    )
    report = BuildReport(ok=True, seconds=1.0, cached=False, log="", kernels=[used])
    said = shown(JobResult("j", Status.CORRECT, build=report, profile={"bound": "memory", "cases": CASES}))
    for words in (
        "`gemm`",
        "vgpr 128",
        "agpr 64",
        "lds_bytes 32768",
        "vgpr_spills 3",
        "occupancy 2",
        "big",
        "memory",
    ):
        assert words in said
    assert "71" in said, "how much of the bandwidth is reached"


def test_without_a_report_nothing_is_claimed() -> None:
    said = shown(None)
    assert "Resources" not in said and "Profile" not in said
