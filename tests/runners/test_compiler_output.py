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
    assert "tt.func" not in essence(without_modules(FAILED_PASS))


def test_a_module_that_was_cut_is_left_out_to_its_end() -> None:
    cut = FAILED_PASS[: FAILED_PASS.index("    tt.return")].rstrip()
    assert without_modules(cut).split("\n")[1:] == [
        "LLVM ERROR: Failed to find a valid layout",
        "[5 lines of MLIR left out]",
    ]


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
