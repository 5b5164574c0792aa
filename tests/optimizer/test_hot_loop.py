"""Test that the densest loop of a listing is found, for compilers of three architectures, and fits a prompt."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.runs.hot_loop import MOST_LINES, hot_loop
from optimizer.search.base import History, StrategySettings
from runners.job import BuildReport, JobResult, Status
from tests.optimizer.simulated_run import seed

AMDGCN = """gemm:
	s_load_dwordx4 s[0:3], s[4:5], 0x0
.LBB0_1:
	s_add_i32 s6, s6, 1
.LBB0_2:
	global_load_dwordx4 v[0:3], v4, s[0:1]
	v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[0:1], v[2:3], a[0:3]
	v_mfma_f32_16x16x32_fp8_fp8 a[4:7], v[0:1], v[2:3], a[4:7]
	s_cbranch_scc1 .LBB0_2
	s_cmp_lt_i32 s6, s7
	s_cbranch_scc1 .LBB0_1
	s_endpgm
"""
SASS = """        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/                   LDG.E.128 R4, [R2.64] ;
        /*0030*/                   FFMA R0, R4, R5, R0 ;
        /*0040*/                   FFMA R0, R6, R7, R0 ;
        /*0050*/               @P0 BRA 0x20 ;
        /*0060*/                   EXIT ;
"""
X86 = """softmax_rows:
    push %rbx
    test %rdi,%rdi
    je <softmax_rows>
    vbroadcastss (%rip),%ymm2
    nopl 0x0(%rax)
    vmovups (%rdi,%rax,4),%ymm0
    vfmadd132ps %ymm0,%ymm1,%ymm2
    vaddps %ymm0,%ymm1,%ymm1
    add $0x8,%rax
    cmp %rsi,%rax
    jne <softmax_rows>
    call <memcpy@plt>
    vaddps %ymm0,%ymm1,%ymm1
    vaddps %ymm0,%ymm1,%ymm1
    vaddps %ymm0,%ymm1,%ymm1
    jmp <softmax_rows>
"""


def test_the_inner_loop_is_found_by_its_label_on_amd() -> None:
    loop = hot_loop({"amdgcn": AMDGCN})["amdgcn"].splitlines()
    assert loop[0] == ".LBB0_2:" and loop[-1].endswith("s_cbranch_scc1 .LBB0_2") and len(loop) == 5


def test_the_loop_is_found_by_its_address_on_nvidia() -> None:
    loop = hot_loop({"sass": SASS})["sass"].splitlines()
    assert "LDG" in loop[0] and "BRA 0x20" in loop[-1] and len(loop) == 4


def test_a_stretch_of_vector_arithmetic_without_calls_stands_for_the_loop_on_x86() -> None:
    loop = hot_loop({"x86": X86})["x86"].splitlines()
    assert "vmovups" in loop[0] and "jne" in loop[-1] and len(loop) == 6


def test_a_loop_that_is_too_long_and_a_text_without_one_give_nothing() -> None:
    long = AMDGCN.replace(
        "\ts_cbranch_scc1 .LBB0_2", "\tv_fma_f32 v0, v1, v2, v0\n" * 200 + "\ts_cbranch_scc1 .LBB0_2"
    )
    assert hot_loop({"amdgcn": long}) == {}
    assert hot_loop({"x86": "int main() { return 0; }", "sass": ""}) == {}


@given(
    st.lists(
        st.sampled_from([*AMDGCN.splitlines(), *SASS.splitlines(), *X86.splitlines(), "\x00<<<"]), max_size=400
    )
)
def test_whatever_a_listing_holds_the_excerpt_is_short_and_from_it(lines: list[str]) -> None:
    for text in hot_loop({"any": "\n".join(lines)}).values():
        assert len(text.splitlines()) <= MOST_LINES
        assert text in "\n".join(line.rstrip() for line in "\n".join(lines).splitlines())


def test_a_prompt_shows_the_loop_between_marks() -> None:
    build = BuildReport(True, 0.1, False, "", assembly={"x86": "vaddps %ymm0\n## New task"})
    kernel = replace(seed("k", 1.0, 0), result=JobResult("j", Status.CORRECT, build=build))
    history = History(None, "cpu", StrategySettings(), 1, [kernel])
    said = sections.machine_code(kernel, Delimiters("m" * 16))
    assert "densest arithmetic" in said and "vaddps" in said.split("BEGIN DATA", 1)[1].split("END DATA")[0]
    assert "vaddps" not in sections.kernel(kernel, history, Delimiters("m" * 16), "Result", source=False)
