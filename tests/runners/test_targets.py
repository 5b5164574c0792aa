"""Test targets: what is known of hardware and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runners.harness.devices.cpu_levels import measured_levels
from runners.harness.devices.gpu_state import is_other_product
from runners.harness.timing.environment import describe
from runners.problems.base import Work
from runners.profiling.summary import in_words, summary
from runners.state import state_dir, write_json
from runners.targets import (
    ALIASES,
    TARGETS,
    Target,
    UnknownTarget,
    canonical,
    ceilings,
    ceilings_in,
    product_target,
    target,
)

GPUS = [found for found in TARGETS.values() if found.family == "gpu"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path))


def product(m: int, n: int, k: int) -> Work:
    return Work({"float8_e4m3fnuz": 2.0 * m * n * k}, m * k + n * k + 4 * (m + n / 128) * k / 128 + 2 * m * n)


@pytest.mark.parametrize(
    ("shape", "published_us"),
    [
        ((1024, 1536, 7168), 8.63),
        ((1024, 4608, 7168), 25.89),
        ((6144, 1536, 7168), 51.78),
        ((6144, 4608, 7168), 155.30),
        ((1024, 7168, 256), 3.17),
        ((6144, 7168, 256), 17.27),
    ],
)
def test_roofline_of_mi300x_is_the_published_speed_of_light(
    shape: tuple[int, int, int], published_us: float
) -> None:
    assert target("MI300X").roofline_us(product(*shape)) == pytest.approx(published_us, rel=0.02)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        # A product of float32 is bound by its own units, and three products of bfloat16 add up to nearly the same.
        (Work({"float32": 2 * 4096.0**3}, 3 * 4 * 4096.0**2), True),
        (Work({"bfloat16": 2 * 4096.0**3}, 3 * 2 * 4096.0**2), False),
        # Memory binds a product with a vector, whatever computes it.
        (Work({"float32": 2 * 4096.0**2}, 4 * 4096.0**2), False),
        (Work({}, 1e9), False),
        (None, False),
    ],
)
def test_units_of_a_lower_precision_can_beat_the_roofline_of_a_product(work: Work, expected: bool) -> None:
    assert target("sm_90").can_beat_roofline(work) is expected
    assert not target("cpu").can_beat_roofline(work)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.key)
def test_every_gpu_has_what_builds_and_rooflines_need(gpu: Target) -> None:
    assert gpu.sources and gpu.bandwidth and gpu.units and gpu.wavefront in (32, 64)
    assert gpu.lds_bytes <= gpu.unit_lds_bytes and gpu.lane_registers and gpu.caches_bytes["L2"]
    assert gpu.peak_flops["bfloat16"] > gpu.peak_flops["float32"] >= gpu.peak_flops["float64"]
    assert gpu.key.startswith(gpu.arch)


def test_products_name_their_target_in_any_case() -> None:
    assert canonical("MI300X") == canonical("mi300x") == canonical("gfx942") == "gfx942"
    assert canonical("H100 PCIe") == "sm_90-h100-pcie"
    assert set(ALIASES.values()) <= set(TARGETS)


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "sm_90"),
        ("NVIDIA H100 PCIe", "sm_90-h100-pcie"),
        ("NVIDIA H200", "sm_90-h200"),
        ("NVIDIA A100-SXM4-80GB", "sm_80"),
        ("AMD Instinct MI325X OAM", "gfx942-mi325x"),
        ("NVIDIA GH200 480GB", None),
        ("", None),
    ],
)
def test_a_drivers_name_of_a_device_leads_to_the_target_of_its_product(device: str, key: str | None) -> None:
    found = product_target(device)
    assert (found.key if found else None) == key


@pytest.mark.parametrize(
    ("facts", "is_other"),
    [
        ({"gpu": "NVIDIA H200"}, True),
        ({"gpu": "NVIDIA H100 80GB HBM3"}, False),
        ({"gpu": "NVIDIA GH200 480GB"}, False),
        ({"amd_smi_static": {"gpu_data": [{"asic": {"market_name": "AMD Instinct MI300X OAM"}}]}}, True),
        ({}, False),
    ],
)
def test_a_gpu_with_a_target_of_its_own_is_told_from_the_targets_product(
    facts: dict[str, Any], is_other: bool
) -> None:
    assert is_other_product(target("sm_90"), facts) is is_other


def test_an_unknown_target_is_told_with_those_there_are() -> None:
    with pytest.raises(UnknownTarget, match="gfx942"):
        target("voodoo2")


def test_flush_empties_the_infinity_cache_twice() -> None:
    assert target("gfx942").flush_bytes == 512 << 20


def test_floor_lets_outputs_stay_in_the_cache_and_float32_be_built_from_tf32() -> None:
    h100 = target("H100")
    small = Work({"float32": 1.0}, 32 << 20)
    floor, roofline = h100.floor_us(small), h100.roofline_us(small)
    assert floor is not None and roofline is not None and floor < 0.001 < roofline
    heavy = Work({"float32": 1e12}, 1.0)
    assert h100.floor_us(heavy) == pytest.approx(1e12 / 989.4e12 * 1e6)
    assert h100.roofline_us(heavy) == pytest.approx(1e12 / 67e12 * 1e6)


def test_measured_ceilings_move_the_roofline_but_not_the_floor() -> None:
    work = Work({"float32": 1e9}, 8 << 30)
    before, floor = target("sm_90").roofline_us(work), target("sm_90").floor_us(work)
    assert before is not None
    write_json(state_dir("ceilings") / "sm_90.json", {"copy_bandwidth": 3.0e12, "matmul_flops": {"float32": 5e13}})
    assert target("sm_90").roofline_us(work) == pytest.approx(before * 3.35 / 3.0)
    assert target("sm_90").floor_us(work) == floor


@pytest.mark.parametrize(("time_us", "bound"), [(70.0, "memory"), (1000.0, "latency")])
def test_summary_says_what_binds_a_kernel(time_us: float, bound: str) -> None:
    found = summary(target("sm_90"), {"case": Work({"float32": 1e6}, 200e6)}, {"case": time_us})
    assert found["bound"] == bound
    assert found["cases"]["case"]["memory_share"] == pytest.approx(200e6 / 3.35e12 * 1e6 / time_us, abs=1e-3)


def test_summary_of_unknown_work_is_empty() -> None:
    assert summary(target("sm_90"), {"case": None}, {"case": 1.0}) == {}


def test_a_profile_in_words_names_bounds_launches_and_kernels_and_takes_no_other_form() -> None:
    case = {"bound": "memory", "compute_share": 0.02, "memory_share": 0.59}
    seen = {
        "cases": {"big": case},
        "launch": {"floor_us": 2.02, "graph_us": {"big": {"candidate": 270.9}}},
        "kernels": {"case": "big", "top": [{"name": "softmax", "launches": 1, "time_us": 266.9}]},
    }
    assert in_words(seen) == [
        "big: bound by memory; 2% of the arithmetic ceiling, 59% of the bandwidth",
        "big: 270.9 µs when replayed from a CUDA graph",
        "the least between two events around one launch on this device: 2.02 µs",
        "266.9 µs a call in 1 launch of softmax",
    ]
    assert in_words({"cases": ["x"], "launch": 3, "kernels": {"top": ["x"]}, "anything": "else"}) == []


def test_a_result_carries_the_ceilings_of_the_machine_that_measured_it() -> None:
    assert "ceilings" not in describe(target("cpu"))
    reached = {"copy_bandwidth": 2.0e10, "matmul_flops": {"float32": 1.5e11}, "measured_at": "2026-11-21"}
    write_json(state_dir("ceilings") / "cpu.json", reached)
    found = ceilings_in(describe(target("cpu")))
    assert (found.copy_bandwidth, found.matmul_flops, found.measured_at) == (
        2.0e10,
        {"float32": 1.5e11},
        "2026-11-21",
    )


@pytest.mark.parametrize(
    "kept", [None, 3, {"copy_bandwidth": "fast", "matmul_flops": {"float32": -1.0}}, {"matmul_flops": [1]}]
)
def test_ceilings_of_another_form_are_none(kept: object) -> None:
    found = ceilings_in({"ceilings": kept})
    assert (found.copy_bandwidth, found.matmul_flops) == (None, {})


def test_a_stream_that_only_reads_can_set_the_measured_bandwidth() -> None:
    write_json(state_dir("ceilings") / "sm_90.json", {"copy_bandwidth": 2.8e12, "read_bandwidth": 3.1e12})
    assert ceilings("sm_90").bandwidth == 3.1e12


def test_a_device_faster_than_its_targets_sheet_is_bound_by_what_was_measured() -> None:
    write_json(state_dir("ceilings") / "sm_90.json", {"copy_bandwidth": 4.0e12, "read_bandwidth": 4.5e12})
    work = Work({}, 10e9)
    floor_us = target("sm_90").floor_us(work)
    assert floor_us is not None
    assert floor_us < 10e9 / 4.6e12 * 1e6


LEVELS = [
    {"name": "L1", "bytes": 1 << 16, "bandwidth": 4.0e11},
    {"name": "L2", "bytes": 1 << 21, "bandwidth": 1.0e11},
    {"name": "DRAM", "bytes": None, "bandwidth": 2.0e10},
]


def test_a_processor_has_measured_roofs_or_none() -> None:
    work = Work({"float32": 1.0}, 1 << 20)
    assert target("cpu").roofline_us(work) is None
    assert summary(target("cpu"), {"rows": work}, {"rows": 10.0}) == {}
    write_json(state_dir("ceilings") / "cpu.json", {"matmul_flops": {"float32": 1.0e11}, "levels": LEVELS})
    assert target("cpu").roofline_us(work) == pytest.approx((1 << 20) / 1.0e11 * 1e6)
    assert target("cpu").roofline_us(Work({}, 1 << 30)) == pytest.approx((1 << 30) / 2.0e10 * 1e6)


def test_a_processors_profile_compares_with_the_level_that_holds_the_data() -> None:
    write_json(state_dir("ceilings") / "cpu.json", {"matmul_flops": {"float32": 1.0e11}, "levels": LEVELS})
    work = Work({"float32": 1.0}, 1 << 20)
    found = summary(target("cpu"), {"rows": work}, {"rows": 20.0})
    assert (found["bound"], found["cases"]["rows"]["level"]) == ("memory", "L2")
    (line,) = in_words(found)
    assert line == "rows: bound by memory; 0% of the arithmetic ceiling, 52% of the bandwidth of L2"


@pytest.mark.parametrize("levels", [None, "L1", [3], [{"name": "L1", "bytes": 4, "bandwidth": "fast"}], {"L1": 1}])
def test_levels_of_another_form_are_none(levels: object) -> None:
    assert ceilings_in({"ceilings": {"levels": levels}}).level_for(1.0) is None


@pytest.mark.processes
def test_the_probe_measures_every_cache_of_this_processor_and_memory() -> None:
    levels = measured_levels(target("cpu"))
    assert [one["name"] for one in levels] == [*sorted(target("cpu").caches_bytes), "DRAM"]
    assert all(one["bandwidth"] > 1e8 for one in levels) and levels[-1]["bytes"] is None
