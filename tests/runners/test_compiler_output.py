"""What compilers print is read for its errors."""

from __future__ import annotations

import pytest

from runners.harness.processes.compilers import essence, is_compile_error, without_modules

# In the form of Triton 3.6, shortened.
FAILED_PASS = """\
RuntimeError: PassManager::run failed
LLVM ERROR: Failed to find a valid layout
#blocked = #ttg.blocked<{sizePerThread = [1], warpsPerCTA = [8]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-warps" = 8 : i32, ttg.target = "cuda:90"} {
  tt.func public @gemm(%arg0: i32) {
    %cst = arith.constant dense<5.0e-01> : tensor<256xf32>
    tt.return
  }
}

{-#
  external_resources: {
    mlir_reproducer: {
      disable_threading: true
    }
  }
#-}
kernel.py:56:0: error: Failures have been detected while processing an MLIR pass pipeline
kernel.py:56:0: note: Pipeline failed while executing [`ConvertTritonGPUToLLVM`]"""


def test_modules_that_a_failed_pass_prints_are_left_out_and_its_errors_stay() -> None:
    assert without_modules(FAILED_PASS).split("\n") == [
        "RuntimeError: PassManager::run failed",
        "LLVM ERROR: Failed to find a valid layout",
        "[16 lines of MLIR left out]",
        "kernel.py:56:0: error: Failures have been detected while processing an MLIR pass pipeline",
        "kernel.py:56:0: note: Pipeline failed while executing [`ConvertTritonGPUToLLVM`]",
    ]
    assert "#blocked" in essence(FAILED_PASS)
    assert "#blocked" not in essence(without_modules(FAILED_PASS))


def test_a_module_that_was_cut_is_left_out_to_its_end() -> None:
    cut = FAILED_PASS[: FAILED_PASS.index("    tt.return")].rstrip()
    assert without_modules(cut).split("\n")[1:] == [
        "LLVM ERROR: Failed to find a valid layout",
        "[5 lines of MLIR left out]",
    ]


def test_a_log_that_was_cut_inside_a_module_goes_on_inside_it_and_errors_are_never_left_out() -> None:
    cut = FAILED_PASS.replace("    tt.return\n", "[… 16190 bytes left out …]\n    ttg.local_dealloc %54\n")
    assert without_modules(cut).count("\n") == 4
    indented = FAILED_PASS.replace("#-}\n", "#-}\n  kernel.py:56:0: error: more\n").replace("\n", "\r\n")
    assert "error: more" in without_modules(indented) and "tt.func" not in without_modules(indented)
    generic = FAILED_PASS.replace("module attributes {", '"builtin.module"() ({').replace("#blocked = #t", "t")
    assert "tt.func" not in without_modules(generic)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'kernel.cu(12): error: identifier "y" is undefined\n      out[i] = y;\n               ^\n',
        "#include <cmath>\n  int main() {\n}\nkernel.cpp:3:1: error: expected ‘;’",
        'Traceback (most recent call last):\n  File "kernel.py", line 3\n    module = {\nSyntaxError: invalid syntax',
    ],
)
def test_output_of_other_compilers_is_kept_as_it_is(text: str) -> None:
    assert without_modules(text) == text


def test_a_failed_pass_of_triton_is_an_error_of_compiling() -> None:
    assert is_compile_error("RuntimeError", "PassManager::run failed")
    assert not is_compile_error("RuntimeError", "shapes do not match")
