"""Describe hardware targets: what a device can do at most, and where the figures come from.

Keys are the compiler's architecture for the common product (`gfx942` is an MI300X, `sm_90` an H100 SXM), and
`architecture-product` for its relatives; product names are aliases (`MI300X`, `H100`). Data sheets give peaks without
sparsity. Ceilings measured by `python -m runners probe` stand beside them, as `Ceilings`.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from runners.problems.base import Work
from runners.state import read_json, state_dir

CPUINFO = Path("/proc/cpuinfo")
FACTOR_DTYPES = {
    "float8_e4m3fnuz": "float8",
    "float8_e4m3fn": "float8",
    "float8_e5m2fnuz": "float8",
    "float8_e5m2": "float8",
}


@dataclass(frozen=True)
class Level:
    """Hold a level of a processor's memory: the bytes that it keeps for all cores (None: memory), and its bandwidth."""

    name: str
    bytes: int | None
    bandwidth: float


@dataclass(frozen=True)
class Ceilings:
    """Hold what a probe reached on one machine; empty if nothing was measured.

    `copy_bandwidth` is that of a large device copy in bytes per second (read and written), `read_bandwidth` that of
    reading alone, `matmul_flops` the FLOP per second of square matrix products by dtype. `levels` are those of a CPU,
    nearest first.
    """

    copy_bandwidth: float | None = None
    matmul_flops: Mapping[str, float] = field(default_factory=dict)
    measured_at: str = ""
    read_bandwidth: float | None = None
    levels: tuple[Level, ...] = ()

    def level_for(self, moved_bytes: float) -> Level | None:
        """Return the nearest level that can hold so many bytes, or None where no levels were measured.

        Data that fits into a cache may lie there, so nothing slower bounds the time.
        """
        return next((one for one in self.levels if one.bytes is None or moved_bytes <= one.bytes), None)

    @property
    def bandwidth(self) -> float | None:
        """Return the most bytes per second that memory was seen to move."""
        return max(filter(None, (self.copy_bandwidth, self.read_bandwidth)), default=None)


@dataclass(frozen=True)
class Target:
    """Describe one kind of device.

    `peak_flops` is per second by dtype of the arithmetic, `bandwidth` in bytes per second. Both are upper bounds,
    since a time under the floor counts as suspect. `units` are compute units or multiprocessors. `lane_registers` is
    what one thread may hold, `lds_bytes` the most shared memory of one workgroup, `waves_per_unit` the most
    wavefronts or warps on one unit. `sources` says where the figures come from.
    """

    key: str
    title: str
    family: str
    peak_flops: dict[str, float] = field(default_factory=dict)
    bandwidth: float | None = None
    caches_bytes: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    vendor: str = ""
    arch: str = ""
    units: int = 0
    wavefront: int = 0
    lds_bytes: int = 0
    unit_lds_bytes: int = 0
    lane_registers: int = 0
    unit_registers: int = 0
    waves_per_unit: int = 0
    memory_bytes: int = 0
    clock_hz: float = 0.0

    @property
    def last_level_bytes(self) -> int:
        """Return the size of the largest cache in bytes, 0 if unknown."""
        return max(self.caches_bytes.values(), default=0)

    @property
    def flush_bytes(self) -> int:
        """Return how many bytes to write to evict everything useful from the caches: twice the last level."""
        return 2 * self.last_level_bytes

    def roofline_us(self, work: Work | None) -> float | None:
        """Return the least time in µs for that work under the ceilings, or None if they are not known.

        On a CPU there are measured ceilings or none: what its load ports could move is no roof of anything that memory
        or an outer cache holds. Elsewhere measured ceilings count before the data sheet's (Williams, Waterman,
        Patterson, "Roofline", CACM 2009).
        """
        if work is None:
            return None
        found = ceilings(self.key)
        if self.family == "cpu":
            return _cpu_roofline_us(work, found)
        return _bound_us(work.flops, self._rates(found), work.bytes, found.bandwidth or self.bandwidth)

    def floor_us(self, work: Work | None) -> float | None:
        """Return the time in µs that no honest measurement can go under; None where nothing is known.

        The ceilings are the measured ones with a margin, at most the data sheet's. A product counts at the rate of the
        fastest units that can build it from several of a lower precision, and bytes only as far as the last-level cache
        cannot hold them back. FLOPs counted on a traced reference bound nothing: a better algorithm needs fewer.
        """
        if work is None:
            return None
        # On a CPU the inputs may lie in the caches; the bandwidth of its floor is that of the load ports, so nothing is
        # deducted.
        cached = self.last_level_bytes if self.family == "gpu" else 0
        found = ceilings(self.key) if self.family == "gpu" else Ceilings()
        rates = {dtype: self._fastest(dtype, found) for dtype in self.peak_flops}
        bandwidth = _margined(self.bandwidth, found.bandwidth)
        flops = {} if work.traced else work.flops
        return _bound_us(flops, rates, max(0.0, work.bytes - cached), bandwidth)

    def can_beat_roofline(self, work: Work | None) -> bool:
        """Return True where units of a lower precision may compute that work in less time than its roofline.

        The roofline assumes the rate of the work's own precision. A float32 product can also be computed as a sum of
        three bfloat16 products, which is faster on matrix units.
        """
        if work is None or self.family != "gpu":
            return False
        found = ceilings(self.key)
        rates, bandwidth = self._rates(found), found.bandwidth or self.bandwidth
        fastest = {dtype: max(rate, self._fastest(dtype, found)) for dtype, rate in rates.items()}
        bound, emulated = (_bound_us(work.flops, one, work.bytes, bandwidth) for one in (rates, fastest))
        return bound is not None and emulated is not None and bound > CEILING_MARGIN * emulated

    def _rates(self, found: Ceilings) -> dict[str, float]:
        """Return the operations per second of each precision: the measured ones before the data sheet's."""
        return {dtype: found.matmul_flops.get(dtype, peak) for dtype, peak in self.peak_flops.items()}

    def _fastest(self, dtype: str, found: Ceilings) -> float:
        # Several products of a lower precision can make up one of a higher: three bfloat16 products nearly a float32
        # one.
        emulating = {"float32": ("float32", "tfloat32", "bfloat16"), "float64": ("float64", "int8")}
        names = emulating.get(dtype, (dtype,))
        rates = (_margined(self.peak_flops.get(name), found.matmul_flops.get(name)) for name in names)
        return max(rate or 0.0 for rate in rates)


# How far a kernel may exceed a measured ceiling before physics is called in: a large copy and a square product are not
# the fastest that a device can do (a stream that only reads, a shape that suits it better).
CEILING_MARGIN = 1.15


def _margined(peak: float | None, measured: float | None) -> float | None:
    """Return a bound above what was measured, and no higher than the data sheet's.

    A device that measures above its sheet is another model than the target says; then the sheet bounds nothing.
    """
    if peak is None or measured is None:
        return peak
    bound = CEILING_MARGIN * measured
    return bound if measured > peak else min(peak, bound)


def _bound_us(
    flops: Mapping[str, float], rates: Mapping[str, float], moved_bytes: float, bandwidth: float | None
) -> float | None:
    named = {FACTOR_DTYPES.get(dtype, dtype): count for dtype, count in flops.items()}
    bounds = [count / rates[dtype] for dtype, count in named.items() if dtype in rates]
    if bandwidth:
        bounds.append(moved_bytes / bandwidth)
    return max(bounds) * 1e6 if bounds else None


def _cpu_roofline_us(work: Work, found: Ceilings) -> float | None:
    """Return the bound by the level that holds the work's bytes, and by measured products; None without levels."""
    level = found.level_for(work.bytes)
    return None if level is None else _bound_us(work.flops, found.matmul_flops, work.bytes, level.bandwidth)


class UnknownTarget(KeyError):
    """Report that there is no such target. The message lists the known ones."""

    def __str__(self) -> str:
        return str(self.args[0])


def canonical(key: str) -> str:
    """Return the key for a name: a key itself, or a product's name in any case. Raises UnknownTarget."""
    if key in TARGETS:
        return key
    found = ALIASES.get(key.lower().replace(" ", "-"))
    if found is None:
        raise UnknownTarget(f"{key} is not a target; known are {', '.join([*TARGETS, *ALIASES])}")
    return found


def target(key: str) -> Target:
    """Return the target of that key or name. Raises UnknownTarget."""
    return TARGETS[canonical(key)]


def product_target(device: str) -> Target | None:
    """Return the target of the product that a driver's name of a device contains, or None if no target has it.

    `NVIDIA H200` is `sm_90-h200`, `NVIDIA H100 80GB HBM3` is `sm_90`, `NVIDIA GH200 480GB` is none.
    """
    words = set(re.findall(r"[a-z0-9]+", device.lower()))
    named = [alias for alias in ALIASES if words.issuperset(alias.split("-"))]
    # `h100-pcie` says more than `h100`, whose word it contains.
    return target(max(named, key=len)) if named else None


def ceilings(key: str) -> Ceilings:
    """Return what a probe found on this machine for a target; empty if none ran."""
    return ceilings_in({"ceilings": read_json(state_dir("ceilings") / f"{key}.json")})


def ceilings_in(environment: Mapping[str, Any]) -> Ceilings:
    """Return what a probe had found on the machine of a result, from the result's environment.

    The ceilings are empty if the machine had not been probed, and for anything of another form.
    """
    kept = environment.get("ceilings")
    if not isinstance(kept, Mapping):
        return Ceilings()
    rates = kept.get("matmul_flops")
    known = (
        {str(name): rate for name, rate in rates.items() if _is_rate(rate)} if isinstance(rates, Mapping) else {}
    )
    copied, read = (
        rate if _is_rate(rate) else None for rate in map(kept.get, ("copy_bandwidth", "read_bandwidth"))
    )
    return Ceilings(copied, known, str(kept.get("measured_at", ""))[:32], read, _levels(kept.get("levels")))


def _levels(kept: object) -> tuple[Level, ...]:
    """Return the levels that have the form that the probe writes."""
    rows = [row for row in kept[:8] if isinstance(row, Mapping)] if isinstance(kept, list | tuple) else []
    return tuple(level for row in rows if (level := _level(row)) is not None)


def _level(row: Mapping[str, Any]) -> Level | None:
    rate, held = row.get("bandwidth"), row.get("bytes")
    if not isinstance(rate, float | int) or not _is_rate(rate):
        return None
    return Level(str(row.get("name", ""))[:16], held if isinstance(held, int) else None, float(rate))


def _is_rate(value: object) -> bool:
    return isinstance(value, float | int) and 0 < value < math.inf


FMA_UNITS, FMA_FLOPS = 2, 2
LOAD_PORTS = 2
FASTEST_CLOCK_HZ = 5.5e9


def _this_cpu() -> Target:
    """Bound the processor we run on: two fused multiply-adds and two full-width loads per cycle and core.

    The clock is the processor's highest (5.5 GHz if it does not say). Data may lie in the first cache, so the
    bandwidth is that of the load ports, not of memory.
    """
    flags = _cpu_flags()
    width_bytes = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    # The cores that this process may use, which a container may limit.
    rate = len(os.sched_getaffinity(0)) * _clock_hz()
    per_cycle = width_bytes * FMA_UNITS * FMA_FLOPS
    flops = {"float64": rate * per_cycle / 8, "float32": rate * per_cycle / 4}
    flops |= {"bfloat16": flops["float32"] * 2, "float16": flops["float32"] * 2}
    source = "two FMA units and two load ports of full vector width a core, at the highest clock"
    return Target(
        "cpu",
        processor_name(CPUINFO),
        "cpu",
        flops,
        rate * width_bytes * LOAD_PORTS,
        _caches(),
        (source,),
        vendor="cpu",
        arch="native",
    )


def processor_name(cpuinfo: Path) -> str:
    """Return the model that the kernel reports, or the architecture if it reports none, as on many ARM machines."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(filter(None, models), "") or platform.processor() or platform.machine()


def _cpu_flags() -> set[str]:
    # The first core's entry stands for all; ARM writes Features where x86 writes flags.
    text = CPUINFO.read_text().split("\n\n")[0]
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    return set((fields.get("flags") or fields.get("Features") or "").split())


def vector_extensions() -> list[str]:
    """List the vector instruction sets of this processor that matter to a kernel writer, named as in /proc/cpuinfo."""
    return sorted(
        flag
        for flag in _cpu_flags()
        if re.fullmatch(r"sse4_2|avx|avx2|fma|avx512\w*|avx_vnni|amx_\w+|asimd\w*|sve2?|f16c", flag)
    )


def _clock_hz() -> float:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    try:
        return float(path.read_text()) * 1e3
    except (OSError, ValueError):
        return FASTEST_CLOCK_HZ


def _caches() -> dict[str, int]:
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) << 10
    return found


MI, GI, TERA = 1 << 20, 1 << 30, 1e12


def _cdna(
    key: str,
    product: str,
    units: int,
    clock_hz: float,
    bandwidth: float,
    memory_gib: int,
    teraflops: dict[str, float],
    source: str,
    lds_kib: int = 64,
) -> Target:
    """Describe an AMD Instinct of the MI300 family.

    It has wavefronts of 64, 512 registers a lane (256 of them accumulators), 256 MiB Infinity Cache, and 4 MiB
    second-level cache for each of up to eight dies.
    """
    return Target(
        key,
        product,
        "gpu",
        {dtype: rate * TERA for dtype, rate in teraflops.items()},
        bandwidth,
        {"L1": 32 << 10, "L2": 4 * MI, "Infinity Cache": 256 * MI},
        (
            source,
            "AMD Instinct MI300 / CDNA 3 (MI350 / CDNA 4) instruction set architecture guides: registers, LDS, waves",
        ),
        vendor="amd",
        arch=key.partition("-")[0],
        units=units,
        wavefront=64,
        lds_bytes=lds_kib << 10,
        unit_lds_bytes=lds_kib << 10,
        lane_registers=512,
        unit_registers=4 * 512 * 64,
        waves_per_unit=32,
        memory_bytes=memory_gib * GI,
        clock_hz=clock_hz,
    )


def _nvidia(
    key: str,
    product: str,
    units: int,
    clock_hz: float,
    bandwidth: float,
    memory_gib: int,
    teraflops: dict[str, float],
    source: str,
    *,
    l2_mib: int = 50,
    shared_kib: int = 228,
) -> Target:
    """Describe an NVIDIA data-centre GPU.

    It has warps of 32, 64 Ki registers a multiprocessor, at most 255 a thread. A block may use 1 KiB less shared
    memory than its multiprocessor has.
    """
    return Target(
        key,
        product,
        "gpu",
        {dtype: rate * TERA for dtype, rate in teraflops.items()},
        bandwidth,
        {"L1": (256 if shared_kib > 200 else 192) << 10, "L2": l2_mib * MI},
        (source, "CUDA C++ programming guide, technical specifications per compute capability"),
        vendor="nvidia",
        arch=key.partition("-")[0],
        units=units,
        wavefront=32,
        lds_bytes=(shared_kib - 1) << 10,
        unit_lds_bytes=shared_kib << 10,
        lane_registers=255,
        unit_registers=65536,
        waves_per_unit=64,
        memory_bytes=memory_gib * GI,
        clock_hz=clock_hz,
    )


# Dense TFLOP/s from the data sheets, without sparsity.
MI300X_RATES = {
    "float64": 163.4, "float32": 163.4, "tfloat32": 653.7, "float16": 1307.4, "bfloat16": 1307.4,
    "float8": 2614.9, "int8": 2614.9,
}  # fmt: skip
MI300A_RATES = {
    "float64": 122.6, "float32": 122.6, "tfloat32": 490.3, "float16": 980.6, "bfloat16": 980.6,
    "float8": 1961.2, "int8": 1961.2,
}  # fmt: skip
MI355X_RATES = {
    "float64": 78.6, "float32": 157.3, "float16": 2516.6, "bfloat16": 2516.6, "float8": 5033.2, "int8": 5033.2,
    "float6": 10066.3, "float4": 10066.3,
}  # fmt: skip
H100_RATES = {
    "float64": 67.0, "float32": 67.0, "tfloat32": 494.7, "float16": 989.4, "bfloat16": 989.4,
    "float8": 1978.9, "int8": 1978.9,
}  # fmt: skip
H100_PCIE_RATES = {
    "float64": 51.0, "float32": 51.0, "tfloat32": 378.0, "float16": 756.5, "bfloat16": 756.5,
    "float8": 1513.0, "int8": 1513.0,
}  # fmt: skip
B200_RATES = {
    "float64": 40.0, "float32": 80.0, "tfloat32": 1125.0, "float16": 2250.0, "bfloat16": 2250.0,
    "float8": 4500.0, "int8": 4500.0, "float6": 4500.0, "float4": 9000.0,
}  # fmt: skip
A100_RATES = {
    "float64": 19.5, "float32": 19.5, "tfloat32": 156.0, "float16": 312.0, "bfloat16": 312.0, "int8": 624.0,
}  # fmt: skip


def _gpus() -> list[Target]:
    """List the GPUs. Peaks are dense, and those of the matrix units if they have that dtype."""
    return [
        _cdna("gfx942", "AMD Instinct MI300X", 304, 2.1e9, 5.3e12, 192, MI300X_RATES,
              "AMD Instinct MI300X data sheet (2023)"),
        _cdna("gfx942-mi300a", "AMD Instinct MI300A", 228, 2.1e9, 5.3e12, 128, MI300A_RATES,
              "AMD Instinct MI300A data sheet (2023)"),
        _cdna("gfx942-mi325x", "AMD Instinct MI325X", 304, 2.1e9, 6.0e12, 256, MI300X_RATES,
              "AMD Instinct MI325X data sheet (2024)"),
        _cdna("gfx950", "AMD Instinct MI355X", 256, 2.4e9, 8.0e12, 288, MI355X_RATES,
              "AMD Instinct MI355X data sheet (2025)", lds_kib=160),
        _nvidia("sm_90", "NVIDIA H100 SXM", 132, 1.98e9, 3.35e12, 80, H100_RATES,
                "NVIDIA H100 Tensor Core GPU data sheet (SXM5 80 GB)"),
        _nvidia("sm_90-h100-pcie", "NVIDIA H100 PCIe", 114, 1.755e9, 2.0e12, 80, H100_PCIE_RATES,
                "NVIDIA H100 Tensor Core GPU architecture white paper (PCIe)"),
        _nvidia("sm_90-h200", "NVIDIA H200", 132, 1.98e9, 4.8e12, 141, H100_RATES,
                "NVIDIA H200 Tensor Core GPU data sheet (SXM)"),
        _nvidia("sm_100", "NVIDIA B200", 148, 1.965e9, 8.0e12, 180, B200_RATES,
                "NVIDIA Blackwell architecture technical brief and DGX B200 data sheet", l2_mib=126),
        _nvidia("sm_80", "NVIDIA A100 SXM", 108, 1.41e9, 2.039e12, 80, A100_RATES,
                "NVIDIA A100 80 GB SXM data sheet", l2_mib=40, shared_kib=164),
    ]  # fmt: skip


@cache
def _targets() -> dict[str, Target]:
    return {"cpu": _this_cpu(), **{gpu.key: gpu for gpu in _gpus()}}


TARGETS = _targets()
ALIASES = {
    "mi300": "gfx942",
    "mi300x": "gfx942",
    "mi300a": "gfx942-mi300a",
    "mi325x": "gfx942-mi325x",
    "mi355x": "gfx950",
    "h100": "sm_90",
    "h100-pcie": "sm_90-h100-pcie",
    "h200": "sm_90-h200",
    "b200": "sm_100",
    "a100": "sm_80",
}
