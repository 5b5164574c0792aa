"""The harness on a real GPU: `pytest -m gpu tests/runners/test_gpu.py` on an NVIDIA box with bubblewrap."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.harness import evaluate
from runners.harness.devices.device import why_absent
from runners.job import Effort, JobResult, JobSpec, Language, Limits, Source, Status
from runners.problems import load, open_bundle
from runners.targets import target

TARGET = "sm_90"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no NVIDIA GPU"),
]
ROWS = (Path(__file__).parents[2] / "runners/problems/shipped/softmax_rows/seeds/rows.cu").read_text()


def outcome(language: Language, text: str, problem: str = "softmax_rows") -> JobResult:
    limits = Limits(call_s=10.0, total_s=300.0)
    return evaluate(JobSpec("job", load(problem), TARGET, Source(language, text), Effort.QUICK, limits=limits))


@pytest.mark.parametrize("seed", ["cuda_rows", "triton_rows", "reference"])
def test_seeds_are_correct_and_timed_on_the_device(seed: str) -> None:
    (found,) = [s for s in open_bundle(load("softmax_rows")).seeds if s.name == seed]
    result = outcome(found.source.language, found.source.text)
    assert result.status is Status.CORRECT, result.reasons
    assert result.sandbox == "bubblewrap" and result.environment["clock_mhz"]
    assert all(case.candidate_us > 0.9 * (case.roofline_us or 0) for case in result.cases if case.candidate_us)


def test_fp8_bits_of_mi300_are_computed_right_on_another_gpu() -> None:
    (seed,) = [s for s in open_bundle(load("fp8_block_gemm")).seeds if s.name == "triton_decoded"]
    result = outcome(Language.TRITON, seed.source.text, "fp8_block_gemm")
    assert result.status is Status.CORRECT, result.reasons


HIDDEN_STREAM = ROWS.replace(
    "softmax<<<rows, THREADS, 0, stream>>>(x, out, cols);",
    "static cudaStream_t own = nullptr; if (!own) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);"
    " cudaEvent_t ready; cudaEventCreateWithFlags(&ready, cudaEventDisableTiming); cudaEventRecord(ready, stream);"
    " cudaStreamWaitEvent(own, ready, 0); softmax<<<rows, THREADS, 0, own>>>(x, out, cols);",
)


@pytest.mark.parametrize(
    ("text", "statuses", "said"),
    [
        (HIDDEN_STREAM, {Status.SUSPECT}, "device was busy"),
        (ROWS.replace("softmax<<<rows,", "softmax<<<rows - (rows > 600),"), {Status.INCORRECT}, "nan"),
        (ROWS.replace("* scale;", "* scale + (c == cols - 1 ? 1e-2f : 0);"), {Status.INCORRECT}, "elements wrong"),
        (ROWS.replace("out[blockIdx.x * cols + c]", "out[blockIdx.x * cols + c + (1ull << 40)]"), {Status.CRASHED},
         "error"),
        (ROWS.replace("float top = -INFINITY", "for (volatile int i = 0;;) i = i + 1; float top = -INFINITY"),
         {Status.TIMEOUT}, "within"),
        (ROWS.replace("const float scale", "syntax error; const float scale"), {Status.BUILD_FAILED}, "error"),
    ],
    ids=["hidden stream", "part of the output", "wrong", "illegal address", "endless", "does not compile"],
)  # fmt: skip
def test_kernel_that_cheats_or_fails_ends_as_its_own_verdict(text: str, statuses: set[Status], said: str) -> None:
    result = outcome(Language.CUDA, text)
    assert result.status in statuses, (result.status, result.reasons)
    assert said in "; ".join(result.reasons)
    assert result.verdict is None


def test_a_gpu_that_is_not_here_is_the_machines_failure() -> None:
    assert "no AMD Instinct MI300X" in str(why_absent(target("gfx942")))
