"""Kernels for GPUs that are not here: every seed builds, bad ones say why, reports are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from runners.__main__ import main
from runners.backends import backend_for
from runners.backends.resources import from_amdgcn, from_ptxas, from_sass_usage
from runners.job import BuildReport, KernelResources, Language, Source
from runners.problems import load, open_bundle, shipped
from runners.problems.base import Purpose
from runners.targets import target
from runners.verbs.building import build

pytestmark = [pytest.mark.processes, pytest.mark.unchanged()]

TENSOR_CORES = ("attention_forward", "bf16_gemm_bias_gelu", "fp8_gemm_bias", "grouped_gemm", "w4a16_gemm")


def seeds(*languages: Language, shown: tuple[str, ...] = ()) -> list[object]:
    """Return the seeds in those languages; where some are `shown`, by `PROBLEM-SEED`, the others are left to the long
    form."""
    return [
        pytest.param(
            name,
            seed.name,
            id=f"{name}-{seed.name}",
            marks=[] if f"{name}-{seed.name}" in shown or not shown else pytest.mark.long,
        )
        for name in shipped()
        for seed in open_bundle(load(name)).seeds
        if seed.source.language in languages
    ]


@cache
def built(name: str, seed_name: str, key: str) -> BuildReport:
    problem = open_bundle(load(name))
    (source,) = [seed.source for seed in problem.seeds if seed.name == seed_name]
    return build(source, target(key), problem)


@pytest.mark.parametrize(
    ("name", "seed"),
    seeds(Language.TRITON, shown=("matmul_bias_gelu-triton_tiled", "fp8_block_gemm-triton_mfma")),
)
def test_every_triton_seed_builds_for_mi300(name: str, seed: str) -> None:
    report = built(name, seed, "gfx942")
    assert report.ok, report.log
    assert all(kernel.vgpr and kernel.code_bytes and kernel.occupancy for kernel in report.kernels)
    assert all("amdgcn" in key for key in report.assembly)


@pytest.mark.hip
@pytest.mark.parametrize(("name", "seed"), seeds(Language.HIP))
def test_every_hip_seed_builds_for_mi300(name: str, seed: str) -> None:
    report = built(name, seed, "gfx942")
    assert report.ok, report.log
    assert report.kernels and all(kernel.vgpr and kernel.vgpr_spills == 0 for kernel in report.kernels)


@pytest.mark.parametrize(
    "key", ["sm_90", pytest.param("gfx950", marks=pytest.mark.long), pytest.param("sm_100", marks=pytest.mark.long)]
)
def test_a_triton_seed_builds_for_other_gpus(key: str) -> None:
    report = built("softmax_rows", "triton_rows", key)
    assert report.ok, report.log
    # One program a row: the most rows of a timed case.
    cases = open_bundle(load("softmax_rows")).cases(key, Purpose.BENCHMARK)
    most = max(case.sizes["rows"] for case in cases)
    assert max(kernel.features["programs"] for kernel in report.kernels) == most


# Grids of a kernel's launches, and how many programs each has; None where that cannot be computed.
GRIDS = {
    "(4, 8)": 32.0,
    "lambda meta: (meta['n'] // meta['STEP'],)": 2.0,
    "lambda meta: 1 / 0": None,
    "(None,)": None,
    "(2**62, 2**62)": None,
    "(-5,)": None,
}


def test_a_grid_that_cannot_be_computed_is_not_counted_and_no_error() -> None:
    """Launch the kernel with each grid in one build, as a variant of its own: by a constant that says which."""
    launches = "".join(f"    kernel[{grid}](x, out, 128, {number})\n" for number, grid in enumerate(GRIDS))
    text = f"""
import torch, triton, triton.language as tl
@triton.jit
def kernel(x, out, n: tl.constexpr, NUMBER: tl.constexpr, STEP: tl.constexpr = 64):
    at = tl.arange(0, n)
    tl.store(out + at, tl.load(x + at) + NUMBER)
def custom_kernel(x):
    out = torch.empty_like(x)
{launches}    return out
"""
    report = build(Source(Language.TRITON, text), target("sm_90"), open_bundle(load("softmax_rows")))
    assert report.ok, report.log
    found = {grid: kernel.features.get("programs") for grid, kernel in zip(GRIDS, report.kernels, strict=True)}
    assert found == GRIDS


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "seed"), seeds(Language.CUDA))
def test_every_cuda_seed_builds_for_h100(name: str, seed: str) -> None:
    report = built(name, seed, "sm_90")
    assert report.ok, report.log
    assert all(kernel.registers and kernel.occupancy for kernel in report.kernels)
    assert name not in TENSOR_CORES or all(kernel.matrix_instructions for kernel in report.kernels)
    assert all(kernel.extra.get("spill_store_bytes", 0) == 0 for kernel in report.kernels)


def test_fp8_seeds_use_the_matrix_units_of_mi300() -> None:
    report = built("fp8_block_gemm", "triton_mfma", "gfx942")
    assert all(kernel.matrix_instructions for kernel in report.kernels)
    assert any("fp8_fp8" in text for text in report.assembly.values())


@pytest.mark.hip
def test_hip_fp8_seed_uses_the_matrix_units_of_mi300() -> None:
    (kernel,) = built("fp8_block_gemm", "hip_mfma", "gfx942").kernels
    assert kernel.matrix_instructions == 16 and kernel.lds_bytes == 2 * 64 * 136


def test_a_dtype_the_hardware_lacks_is_a_failed_build_that_says_so() -> None:
    report = built("fp8_block_gemm", "triton_mfma", "sm_90")
    assert not report.ok and "not supported in this architecture" in report.log


@pytest.mark.hip
def test_broken_hip_fails_with_the_compiler_message() -> None:
    report = build(Source(Language.HIP, "__global__ void k() { this is wrong; }"), target("gfx942"), None)
    assert not report.ok and "error:" in report.log


UNREADABLE = """
import triton
def custom_kernel(x):
    try:
        return open('/etc/shadow').read()
    except OSError as error:
        raise RuntimeError(f"no luck with {error.filename}")
"""


@pytest.mark.unchanged(always=True)  # a sandbox decides, and no compiler
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (UNREADABLE, "RuntimeError: no luck with /etc/shadow"),
        ("import triton\nimport os\nos._exit(0)\ndef custom_kernel(x): pass\n", "no report"),
    ],
)
def test_hostile_or_broken_triton_is_a_failed_build(text: str, said: str) -> None:
    report = build(Source(Language.TRITON, text), target("gfx942"), open_bundle(load("softmax_rows")))
    assert not report.ok and said in report.log


def test_a_kernel_of_the_wrong_vendor_is_told_so() -> None:
    assert "not for NVIDIA" in build(Source(Language.HIP, "int x;"), target("H100"), None).log


@pytest.mark.parametrize(
    "flag", ["-I/etc", "-include/etc/passwd", "-Xcompiler=-fplugin=x.so", "--compiler-bindir=/tmp"]
)
@pytest.mark.parametrize("language", [Language.CUDA, Language.HIP])
def test_flag_off_the_list_is_refused(language: Language, flag: str) -> None:
    assert flag in backend_for(language).complaints(Source(language, "int x;", flags=(flag,)))[0]


@pytest.mark.hip
def test_build_command_prints_report_and_rooflines(capsys: pytest.CaptureFixture[str]) -> None:
    seed = "runners/problems/shipped/fp8_block_gemm/seeds/mfma.hip"
    assert main(["build", "--target", "MI300X", seed, "--problem", "fp8_block_gemm", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["target"] == "gfx942" and answer["build"]["kernels"][0]["matrix_instructions"] == 16
    assert answer["roofline_us"]["1024x1536x7168"] == pytest.approx(8.63, rel=0.01)


def test_build_command_names_an_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--target", "voodoo2", "x.hip"]) == 2
    assert "voodoo2 is not a target" in capsys.readouterr().err


PTXAS = """ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem
"""


def test_ptxas_report_is_read() -> None:
    (kernel,) = from_ptxas(PTXAS)
    assert (kernel.name, kernel.registers, kernel.lds_bytes, kernel.scratch_bytes) == ("k", 40, 512, 16)
    assert kernel.extra == {"spill_store_bytes": 8}


@pytest.mark.parametrize("reader", [from_amdgcn, from_ptxas, lambda text: from_sass_usage(text, text)])
@pytest.mark.parametrize(
    "text", ["", "\0" * 100, "- .name: x\n.amdgpu_metadata\n  - .vgpr_count: many\n    .name: y\n"]
)
def test_reports_that_make_no_sense_give_no_numbers(
    reader: Callable[[str], list[KernelResources]], text: str
) -> None:
    assert all(kernel.vgpr is None and kernel.registers is None for kernel in reader(text))
