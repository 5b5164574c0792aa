"""Test that what the profilers print is read into one form. ncu's output was recorded on an H100. rocprofv3's is
written after the layout in ROCprofiler-SDK's documentation, since no AMD GPU was there; perf's after what it prints on
a virtual machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.errors import CandidateFailure
from runners.harness.profiling import request
from runners.harness.profiling.request import ProfilingRequest, profiled
from runners.job import Status
from runners.profiling import perf
from runners.profiling.base import ProfilerError, Seen, bound_by, normalised
from runners.profiling.ncu import CONFLICTS, DETAILS, NOT_PERMITTED, STALLS, WAVEFRONTS, Ncu
from runners.profiling.perf import Perf
from runners.profiling.proc import Proc
from runners.profiling.rocprofv3 import Rocprofv3
from runners.profiling.summary import in_words
from runners.state import state_dir, write_json
from runners.targets import target

RECORDED = Path(__file__).parent / "profilers"
H100, MI300, CPU = target("H100"), target("MI300"), target("cpu")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path))


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_ncu_tells_what_binds_each_kernel_of_a_call() -> None:
    found = normalised("ncu", Ncu().read([recorded("ncu-2025.3-h100.txt")], 1, H100))
    product, softmax, small = found["top"]
    assert found["bound"] == "compute"
    assert (product["name"], product["time_us"]) == ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 171.04)
    assert (softmax["name"], softmax["bound"], softmax["memory_share"]) == ("softmax_kernel", "memory", 0.8483)
    assert softmax["details"] == {"dram_percent": 84.83, "warps_active_percent": 46.89}
    assert (small["bound"], small["launches"]) == ("latency", 1)


def test_ncu_tells_why_warps_wait_what_conflicts_and_what_the_caches_hold() -> None:
    line = next(line for line in recorded("ncu-2025.3-h100.txt").splitlines() if '"softmax_kernel"' in line)
    head, known = line.rsplit('","', 3)[0], [*STALLS.items()]

    def row(metric: str, value: str) -> str:
        return f'{head}","{metric}","%","{value}"'

    stalls = [row(metric, f"{10 - number}.5") for number, (_, metric) in enumerate(known)]
    more = [row(CONFLICTS, "300"), row(WAVEFRONTS, "1,200"), row(DETAILS["l2_hit_percent"], "41.25"), *stalls]
    seen = Ncu().read(["\n".join([recorded("ncu-2025.3-h100.txt").rstrip(), *more])], 1, H100)
    details = next(kernel.details for kernel in seen if kernel.name == "softmax_kernel")
    assert details["bank_conflict_percent"] == 25 and details["l2_hit_percent"] == 41.25
    waits = {name: value for name, value in details.items() if name.startswith("stalled")}
    assert waits == {"stalled_long_scoreboard": 10.5, "stalled_short_scoreboard": 9.5, "stalled_barrier": 8.5}


def test_ncu_takes_launches_of_several_calls_together() -> None:
    (softmax,) = [
        kernel
        for kernel in Ncu().read([recorded("ncu-2025.3-h100.txt").replace('"1","585"', '"9","585"')], 3, H100)
        if kernel.name == "softmax_kernel"
    ]
    assert softmax.time_us == pytest.approx(86.624 / 3)


def test_ncu_without_leave_to_count_says_what_to_change() -> None:
    refused = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    )
    with pytest.raises(ProfilerError, match="NVreg_RestrictProfilingToAdminUsers"):
        Ncu().read([refused], 1, H100)
    assert "administrators" in NOT_PERMITTED


def test_ncu_that_printed_no_table_saw_nothing() -> None:
    with pytest.raises(ProfilerError, match="no kernel"):
        Ncu().read(['done\n"ID","half a header\n"0","x"'], 1, H100)


def test_rows_that_a_candidate_prints_into_the_table_break_nothing() -> None:
    forged = recorded("ncu-2025.3-h100.txt") + '\n"0","1"\n"7",' + '"x",' * 12 + '"nan","-1","inf"\n"' + "a" * 9999
    assert len(Ncu().read([forged], 1, H100)) == 3


def test_ncu_counts_only_between_the_marks_and_leaves_clocks_and_compilers_alone() -> None:
    command = " ".join(Ncu().around(0, ["python3", "kernel.py"]))
    assert command.endswith("python3 kernel.py")
    for option in ("--profile-from-start off", "--clock-control none", "--target-processes application-only"):
        assert option in command


def test_rocprofv3_puts_its_passes_together() -> None:
    passes = [recorded(f"rocprofv3-pass{number}.txt") for number in range(3)]
    (kernel,) = Rocprofv3().read(passes, 3, MI300)
    assert kernel.name.startswith("void softmax")
    assert kernel.launches == 1
    assert kernel.time_us == pytest.approx(200.0)
    assert kernel.compute_share == pytest.approx(0.215)
    assert kernel.memory_share == pytest.approx((524288 + 262144) * 1024 / 200e-6 / 5.3e12)
    assert kernel.details["occupancy_percent"] == pytest.approx(62.563927)
    assert normalised("rocprofv3", [kernel])["bound"] == "memory"


def test_rocprofv3_takes_the_bandwidth_that_this_machine_reached() -> None:
    passes = [recorded(f"rocprofv3-pass{number}.txt") for number in range(3)]
    (before,) = Rocprofv3().read(passes, 3, MI300)
    write_json(state_dir("ceilings") / "gfx942.json", {"copy_bandwidth": 4.0e12, "measured_at": "2026-11-21"})
    (after,) = Rocprofv3().read(passes, 3, MI300)
    assert before.memory_share is not None
    assert after.memory_share == pytest.approx(before.memory_share * 5.3 / 4.0)


def test_rocprofv3_without_its_second_pass_tells_no_bound() -> None:
    (kernel,) = Rocprofv3().read([recorded("rocprofv3-pass0.txt"), "error: counter not supported", ""], 3, MI300)
    assert kernel.memory_share is None
    assert "bound" not in normalised("rocprofv3", [kernel])


def test_rocprofv3_starts_the_process_once_a_group_and_prints_the_tables() -> None:
    shell, _, program, _, _, counters, *argv = Rocprofv3().around(1, ["python3", "-c", "x y"])
    assert (shell, counters, argv) == ("/bin/sh", "WRITE_SIZE MfmaUtil", ["python3", "-c", "x y"])
    assert "counter_collection.csv" in program


def test_perf_with_counters_tells_what_binds_the_process() -> None:
    write_json(state_dir("ceilings") / "cpu.json", {"copy_bandwidth": 8.0e9, "measured_at": "2026-11-21"})
    (seen,) = Perf().read([recorded("perf-6.1-counters.txt"), "300000000"], 100, CPU)
    assert seen.time_us == pytest.approx(3000.0)
    assert seen.compute_share == pytest.approx(2 / 4)
    assert seen.memory_share == pytest.approx(30e6 * 64 / 0.3 / 8e9)
    assert seen.details["instructions_per_cycle"] == pytest.approx(2.0)
    assert seen.details["cache_miss_percent"] == pytest.approx(75.0)


def test_perf_in_a_virtual_machine_is_left_with_what_the_kernel_counts() -> None:
    (seen,) = Perf().read([recorded("perf-6.1-no-counters.txt"), "300002303"], 10, CPU)
    assert (seen.compute_share, seen.memory_share) == (None, None)
    assert seen.details["cores_busy"] == pytest.approx(1.939, abs=1e-3)
    assert seen.details["page_faults_a_call"] == pytest.approx(7.5)


def test_perf_that_may_not_count_repeats_what_it_was_told() -> None:
    with pytest.raises(ProfilerError, match="limited"):
        Perf().read(["Access to performance monitoring and observability operations is limited.", "1"], 1, CPU)


def test_perf_that_is_not_there_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    perf._missing.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    try:
        assert "linux-perf" in Perf().missing()
    finally:
        perf._missing.cache_clear()


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf_counts_a_running_process_from_outside() -> None:
    if reason := Perf().missing():
        pytest.skip(reason)
    sleeps = "import threading, time\nfor _ in range(7): threading.Thread(target=time.sleep, args=[60]).start()\n"
    busy = subprocess.Popen([sys.executable, "-c", f"{sleeps}while True: pass"])
    try:
        time.sleep(0.3)
        with Perf().counting([busy.pid]) as printed:
            time.sleep(0.2)
        (seen,) = Perf().read(printed, 1, CPU)
    finally:
        busy.kill()
        busy.wait()
    assert 0.2 < seen.time_us / 1e6 < 5, "not the sum over the threads"
    assert seen.details["cores_busy"] > 0


def test_without_perf_faults_and_processor_time_are_still_counted() -> None:
    program = "b = bytearray(1)\nwhile True: b = b'x' * (1 << 26)"
    busy = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(0.2)
        with Proc().counting([busy.pid]) as printed:
            time.sleep(0.3)
        (seen,) = Proc().read(printed, 10, CPU)
    finally:
        busy.kill()
        busy.wait()
    assert 0.2 < seen.time_us / 1e6 * 10 < 30
    assert 0 < seen.details["cores_busy"] < 1.5
    assert seen.details["page_faults_a_call"] > 1, "each buffer is mapped anew"
    (words,) = in_words({"kernels": normalised("proc", [seen])})
    assert "page faults a call" in words and "cores busy" in words


def test_a_process_that_has_ended_is_not_counted() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(ProfilerError, match="cannot be counted"), Proc().counting([gone.pid]):
        pass


@pytest.mark.parametrize(
    ("compute", "memory", "bound"), [(0.9, 0.4, "compute"), (0.2, 0.5, "memory"), (0.3, 0.3, "latency")]
)
def test_a_third_of_a_ceiling_binds(compute: float, memory: float, bound: str) -> None:
    assert bound_by(compute, memory) == bound


def test_summary_is_short_and_bounded_whatever_a_tool_says() -> None:
    many = [Seen("k" * 5000, 1, float(number), 7.0, 0.5, {"x": 1.23456789}) for number in range(40)]
    found = normalised("ncu", many)
    assert len(found["top"]) == 8
    assert len(found["top"][0]["name"]) == 160
    assert found["top"][0]["compute_share"] == 1.0
    assert found["top"][0]["details"] == {"x": 1.235}


def profiling_request(kind: str, *, closely: bool = True) -> ProfilingRequest:
    case: Any = SimpleNamespace(name="big")
    nothing: Any = None
    device: Any = SimpleNamespace(kind=kind)
    return ProfilingRequest(nothing, device, H100, nothing, case, 1, 10.0, closely)


@contextmanager
def looks(kind: str, *chain: tuple[str, Any]) -> Iterator[None]:
    before = request.TOOLS[kind]
    request.TOOLS[kind] = chain
    try:
        yield
    finally:
        request.TOOLS[kind] = before


def failing(error: Exception) -> Any:
    def look(_: ProfilingRequest) -> list[Seen]:
        raise error

    return look


def test_a_tool_that_fails_is_noted_and_the_next_is_asked() -> None:
    absent, crashed = (
        ProfilerError("ncu is not installed"),
        CandidateFailure(Status.TIMEOUT, "no answer within 30 s"),
    )
    with looks(
        "cuda", ("ncu", failing(absent)), ("other", failing(crashed)), ("torch", lambda _: [Seen("k", 2, 3.0)])
    ):
        found = profiled(profiling_request("cuda"))
    assert (found["tool"], found["case"], found["top"][0]["launches"]) == ("torch", "big", 2)
    assert found["notes"][:2] == ["ncu: ncu is not installed", "other: no answer within 30 s"]
    assert "without hardware counters" in found["notes"][2]


def test_where_no_tool_can_be_used_the_notes_say_why() -> None:
    with looks("cpu", ("perf", failing(ProfilerError("perf is not installed (Debian: linux-perf)")))):
        assert profiled(profiling_request("cpu")) == {
            "case": "big",
            "top": [],
            "notes": ["perf: perf is not installed (Debian: linux-perf)"],
        }


def test_a_kernel_that_nobody_builds_upon_is_not_run_anew_for_counters() -> None:
    with looks("cuda", ("ncu", failing(AssertionError("asked"))), ("torch", lambda _: [Seen("k", 1, 3.0)])):
        assert profiled(profiling_request("cuda", closely=False))["tool"] == "torch"


def test_counters_are_put_into_words_for_agents() -> None:
    kernel = Seen("softmax", 1, 266.9, 0.36, 0.86, {"dram_percent": 86.4})
    assert in_words({"kernels": normalised("ncu", [kernel])}) == [
        "266.9 µs a call in 1 launch of softmax: bound by memory, 36% of the arithmetic, 86% of the memory by ncu's "
        "counters (dram 86.4 %)"
    ]


def test_the_name_of_a_template_is_cut_and_its_counters_are_not() -> None:
    kernel = Seen(
        "void at::native::vectorized_elementwise_kernel<" + "8, " * 200, 1, 86.98, 0.6, 0.9, {"dram_percent": 85.6}
    )
    (words,) = in_words({"kernels": normalised("ncu", [kernel])})
    assert words.startswith("86.98 µs a call in 1 launch of void at::native::vectorized_elementwise_kernel<8, ")
    assert words.endswith(
        ",…: bound by memory, 60% of the arithmetic, 90% of the memory by ncu's counters (dram 85.6 %)"
    )
