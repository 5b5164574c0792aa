"""Test what is read from machine code: kinds, loops, widths, access patterns, on listings whose answer is known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runners.backends import backend_for
from runners.backends.base import BuildRequest
from runners.backends.mca import llvm_mca
from runners.backends.resources import from_amdgcn
from runners.job import KernelResources, Language, Limits, Source
from runners.static_features import Dialect, Listing, features_of, hottest_block
from runners.static_features.listing import MOST_INSTRUCTIONS, natural_loops

NESTED = """
kernel:
	v_and_b32_e32 v1, 0x3ff, v0
	v_lshlrev_b32_e32 v2, 2, v1
	s_mov_b32 s4, 0
.LBB0_1:                                ; %outer
	s_mov_b32 s5, 0
.LBB0_2:                                ; %inner
	global_load_dword v3, v2, s[0:1]
	s_waitcnt vmcnt(0)
	v_fma_f32 v4, v3, v3, v4
	s_add_i32 s5, s5, 1
	s_cmp_eq_u32 s5, 64
	s_cbranch_scc0 .LBB0_2
; %bb.3:
	s_add_i32 s4, s4, 1
	s_cmp_eq_u32 s4, 8
	s_cbranch_scc0 .LBB0_1
; %bb.4:
	global_store_dwordx4 v2, v[4:7], s[2:3]
	s_endpgm
"""
SASS = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   FFMA R4, R4, R5, R4 ;
        /*0040*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0050*/              @!P0 BRA 0x20 ;
        /*0060*/                   STL [R1], R4 ;
        /*0070*/                   STG.E.64 desc[UR4][R2.64], R4 ;
        /*0080*/                   EXIT ;
        /*0090*/                   BRA 0x90;
"""


def amd(*lines: str) -> dict[str, float]:
    body = "\n".join(["kernel:", *(f"\t{line}" for line in lines)])
    return features_of(Listing.read(Dialect.AMDGCN, body))


def test_instructions_are_counted_by_kind_and_loop() -> None:
    found = features_of(Listing.read(Dialect.AMDGCN, NESTED))
    assert (found["loops"], found["loop_depth"], found["blocks"]) == (2, 2, 5)
    assert (found["load"], found["loop_load"], found["store"], found["loop_store"]) == (1, 1, 1, 0)
    assert (found["flops"], found["loop_flops"], found["wait"], found["branch"]) == (2, 2, 1, 3)
    assert (found["load_bytes"], found["store_bytes"]) == (4, 16)


def test_the_hottest_block_is_that_of_the_innermost_loop() -> None:
    listing = Listing.read(Dialect.AMDGCN, NESTED)
    block = hottest_block(listing)
    assert block is not None and block.depth == 2
    assert listing.instructions[block.start].opcode == "global_load_dword" and len(block) == 6


def test_a_jump_backwards_that_is_no_loop_is_not_counted_as_one() -> None:
    # 0 → 1 or 2, 2 → 1: block 1 lies before block 2 in the text and does not dominate it.
    assert natural_loops([(1, 2), (3,), (1,), ()]) == {}
    assert natural_loops([(1,), (2,), (1, 3), ()]) == {1: {1, 2}}


def test_sass_is_read_with_its_loop_and_without_the_trap_after_its_end() -> None:
    found = features_of(Listing.read(Dialect.SASS, SASS))
    assert (found["loops"], found["loop_instructions"], found["matrix"]) == (1, 4, 1)
    assert (found["load_bytes"], found["store_bytes"], found["scratch"]) == (16, 8, 1)
    assert found["matrix_share"] == pytest.approx(1 / 3)
    assert "contiguous" not in found


@pytest.mark.parametrize(
    ("steps", "pattern"),
    [
        (["v_lshlrev_b32_e32 v1, 2, v0"], "contiguous"),
        (["v_lshlrev_b32_e32 v1, 4, v0"], "strided"),
        (["s_movk_i32 s8, 0x64", "v_mul_lo_u32 v1, v0, s8"], "strided"),
        (["v_mov_b32_e32 v1, s7"], "broadcast"),
        (["v_bfe_u32 v1, v0, 10, 10", "v_lshlrev_b32_e32 v1, 2, v1"], "broadcast"),
        (["s_load_dword s8, s[2:3], 0x0", "v_mul_lo_u32 v1, v0, s8"], "scattered"),
        (["global_load_dword v1, v0, s[0:1]", "v_lshlrev_b32_e32 v1, 2, v1"], "scattered"),
    ],
)
def test_the_pattern_of_an_access_follows_from_how_its_address_was_computed(steps: list[str], pattern: str) -> None:
    found = amd(*steps, "global_store_dword v1, v5, s[4:5]", "s_endpgm")
    before = amd(*steps, "s_endpgm")
    assert found[pattern] - before[pattern] == 1


@pytest.mark.parametrize(("shift", "ways"), [(2, 1), (3, 2), (6, 16), (7, 32), (9, 32)])
def test_lanes_that_meet_in_a_bank_are_counted(shift: int, ways: int) -> None:
    found = amd(f"v_lshlrev_b32_e32 v1, {shift}, v0", "ds_read_b32 v2, v1", "s_endpgm")
    assert (found["lds_conflict_ways"], found["lds_conflicts"]) == (ways, int(ways > 1))


def test_spills_are_told_from_accesses_of_the_kernel() -> None:
    found = amd("buffer_store_dword v9, off, s[0:3], 0 offset:4 ; 4-byte Folded Spill",
                "buffer_load_dword v9, v1, s[4:7], 0 offen")  # fmt: skip
    assert (found["scratch"], found["load"], found["store"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "\n" * 1000,
        "; comment only",
        ".LBB0_1:\n\ts_branch .LBB0_1",
        "\ts_cbranch_scc0 .LBB9_9\n\tv_add_u32 v999999999, v[0:4000000000], v1",
        "\tv_lshlrev_b32 v1, 99999999999, v0\n\tglobal_load_dword v2, v1, off",
        "\tglobal_load_dword\n\tds_read_b32 v1\n\tv_mov_b32 v1",
        "\0\x1b[31m\tv_add_f32 v1, v2",
        "\tv_mul_lo_u32 v0, v0, 0x7fffffff\n" * 300 + "\tglobal_load_dword v1, v0, off",
    ],
)
def test_text_that_is_no_code_gives_figures_or_none_and_no_error(hostile: str) -> None:
    for dialect in Dialect:
        found = features_of(Listing.read(dialect, hostile))
        assert all(isinstance(value, int | float) for value in found.values())


def test_a_listing_without_end_is_read_in_part_and_deep_nesting_does_not_recurse() -> None:
    blocks = "".join(f".L{at}:\n\ts_cbranch_scc0 .L{at}\n" for at in range(MOST_INSTRUCTIONS + 5))
    listing = Listing.read(Dialect.AMDGCN, blocks)
    assert len(listing.instructions) == MOST_INSTRUCTIONS
    assert natural_loops([(at + 1,) for at in range(5000)] + [(0,)]) == {0: set(range(5001))}


STRIDED = """
#include <hip/hip_runtime.h>
extern "C" __global__ void copy_kernel(float *out, const float *in, int n) {
    __shared__ float tile[64 * 32];
    for (int i = 0; i < n; i++) {
        tile[threadIdx.x * 32] = in[i * 64 + threadIdx.x];
        __syncthreads();
        out[i * 64 + threadIdx.x] = tile[threadIdx.x * 32] * 2.0f + 1.0f;
        __syncthreads();
    }
}
extern "C" void copy(float *out, const float *in, int n, void *stream) {
    copy_kernel<<<1, 64, 0, (hipStream_t)stream>>>(out, in, n);
}
"""


@pytest.mark.processes
@pytest.mark.hip
def test_a_build_of_hip_carries_the_features_of_its_machine_code(tmp_path: Path) -> None:
    (kernel,) = built(tmp_path, STRIDED)
    found = kernel.features
    assert (found["loops"], found["loop_depth"], found["barrier"]) == (1, 1, 2)
    assert found["contiguous"] == 2 and found["lds_conflict_ways"] == 32
    assert found["loop_flops"] >= 2 and found["matrix"] == 0
    assert ("hot_cycles" in found) == (llvm_mca() is not None)


@pytest.mark.processes
@pytest.mark.hip
@pytest.mark.skipif(llvm_mca() is None, reason="llvm-mca is not installed")
def test_a_long_chain_of_matrix_instructions_takes_more_cycles_than_a_short_one(tmp_path: Path) -> None:
    cycles = []
    for count in (2, 8):
        steps = "acc = __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, acc, 0, 0, 0);" * count
        text = f"""
#include <hip/hip_runtime.h>
typedef float v4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void chain(float *out, float a, float b) {{ v4 acc = {{0, 0, 0, 0}}; {steps}
    out[threadIdx.x] = acc[0]; }}
extern "C" void copy(void) {{}}
"""
        folder = tmp_path / str(count)
        folder.mkdir()
        (kernel,) = built(folder, text)
        assert kernel.features["matrix"] == count
        cycles.append(kernel.features["hot_cycles"])
    assert cycles[1] >= cycles[0] + 6 * 8


def built(folder: Path, text: str) -> list[KernelResources]:
    folder.chmod(0o755)
    request = BuildRequest(Source(Language.HIP, text), "copy", "gfx942", folder, Limits())
    report = backend_for(Language.HIP).build(request).report
    assert report.ok, report.log
    return report.kernels


def test_a_program_that_is_not_there_leaves_the_figure_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert llvm_mca() is None
    assert from_amdgcn("") == []
