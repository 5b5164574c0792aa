"""Test what is handed in to KernelBot: one Python file that means what the candidate meant."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension

from kernelsci_site.services.site_parts import worker_parts
from runners.job import JobSpec, Language, Source
from runners.kernelbot.candidate import CandidateRefusedError, submission_of, without_stream
from runners.problems import SHIPPED, load, open_bundle
from runners.problems.base import Purpose

SEEDS = SHIPPED / "fp8_block_gemm" / "seeds"
HIP = """// @tune BLOCK 64 128 default=64
#include <hip/hip_runtime.h>
__global__ void k(const uint8_t* a, uint16_t* out) {}
extern "C" void fp8_block_gemm(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                               uint16_t* out, int64_t m, int64_t n, int64_t k_, void* stream) {
    k<<<dim3(m), BLOCK, 0, (hipStream_t)stream>>>(a, out);
}
"""


def spec(text: str, language: Language, problem: str = "fp8_block_gemm", **chosen: Any) -> JobSpec:
    return JobSpec("evaluation-1", load(problem), "gfx942", Source(language, text, **chosen))


def entry(text: str) -> Callable[[Any], Any]:
    module: dict[str, Any] = {}
    exec(compile(text, "submission.py", "exec"), module)  # noqa: S102 - as KernelBot's runner would import it
    found: Callable[[Any], Any] = module["custom_kernel"]
    return found


def inputs() -> tuple[list[Any], torch.Tensor]:
    """Return arguments of the smallest case as KernelBot would hand them over, and the expected output."""
    problem = open_bundle(load("fp8_block_gemm"))
    case = problem.cases("cpu", Purpose.TEST)[0]
    made = problem.make_inputs(case, 1, "normal")
    out = torch.zeros(case.sizes["m"], case.sizes["n"], dtype=torch.bfloat16)
    return [*made.values.values(), out], problem.expected(made)[0]


def agrees(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(got.double(), expected.double(), rtol=2e-2, atol=1e-3)


def test_a_python_kernel_of_ours_takes_kernelbots_tuple() -> None:
    data, expected = inputs()
    kernel = entry(submission_of(spec((SEEDS / "reference.py").read_text(), Language.PYTHON)))
    assert agrees(kernel(tuple(data)), expected)


def test_chosen_tunables_are_in_the_submission() -> None:
    text = "# @tune BLOCK 16 32 default=16\nBLOCK = 16\ndef custom_kernel(*inputs): return BLOCK\n"
    chosen = submission_of(spec(text, Language.TRITON, tunables={"BLOCK": 32}))
    assert entry(chosen)((1, 2, 3, 4, 5)) == 32


def test_a_kernel_for_a_gpu_mode_problem_is_handed_in_as_it_is(tmp_path: Path) -> None:
    task = "files: [{name: submission.py, source: '@SUBMISSION@'}, {name: reference.py, source: reference.py}]\n"
    task += "lang: py\nconfig: {main: eval.py}\n"
    task += "description: d\ntests: [{n: 4, seed: 1}]\nbenchmarks: [{n: 8, seed: 2}]\n"
    reference = "def generate_input(n, seed): return n\ndef ref_kernel(data): return data\n"
    reference += "def check_implementation(data, output): return True, ''\n"
    (tmp_path / "task.yml").write_text(task)
    (tmp_path / "reference.py").write_text(reference)
    bundle = load(tmp_path)
    text = "def custom_kernel(data):\n    return data\n"
    assert submission_of(JobSpec("e", bundle, "gfx942", Source(Language.PYTHON, text))) == text
    with pytest.raises(CandidateRefusedError, match="C signature"):
        submission_of(JobSpec("e", bundle, "gfx942", Source(Language.HIP, HIP)))


def test_a_hip_kernel_becomes_a_module_that_compiles_it_and_calls_it_in_our_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a compiler of C++ in the place of torch's build, the generated code computes the right product."""
    seen: dict[str, Any] = {}

    def load_inline(cuda_sources: list[str], extra_cuda_cflags: list[str], **more: Any) -> Any:
        seen.update(more, flags=extra_cuda_cflags)
        (tmp_path / "k.cpp").write_text(cuda_sources[0])
        library = tmp_path / "k.so"
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", tmp_path / "k.cpp", "-o", library], check=True)
        function = ctypes.CDLL(str(library)).fp8_block_gemm

        class Module:
            @staticmethod
            def call(*arguments: Any) -> None:
                tensors = [ctypes.c_void_p(a.data_ptr()) for a in arguments[:5]]
                function(*tensors, *(ctypes.c_int64(size) for size in arguments[5:]), None)

        return Module

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", load_inline)
    source = (SEEDS / "naive.cpp").read_text()
    head, signature, rest = source.partition('extern "C" void fp8_block_gemm(')
    parameters, _, body = rest.partition(")")
    kernel = entry(submission_of(spec(f"{head}{signature}{parameters}, void* stream){body}", Language.HIP)))

    data, expected = inputs()
    assert agrees(kernel(tuple(data)), expected)
    data[0] = data[0].float().contiguous().to(data[0].dtype)  # rows where our signature says columns
    assert agrees(kernel(tuple(data)), expected)
    assert seen["functions"] == ["call"]
    assert "const uint8_t* a" in seen["cpp_sources"][0] and "nullptr" in seen["cpp_sources"][0]


def test_a_hip_kernel_launches_on_the_default_queue_and_keeps_its_tunables() -> None:
    text = submission_of(spec(HIP, Language.HIP, tunables={"BLOCK": 128}))
    assert "k<<<dim3(m), BLOCK, 0>>>(a, out);" in text
    assert "-DBLOCK=128" in text
    assert "stream" not in text.lower()


@pytest.mark.parametrize(
    "launch",
    [
        "f<<<g, b, 0, (hipStream_t)stream>>>(x);",
        "f<<<g, b, 0, static_cast<hipStream_t>(stream)>>>(x);",
        "f<<<g, b, 0, reinterpret_cast< hipStream_t >( stream )>>>(x);",
    ],
)
def test_every_way_to_name_the_handle_in_a_launch_is_known(launch: str) -> None:
    assert without_stream(launch) == "f<<<g, b, 0>>>(x);"


@pytest.mark.parametrize("extra", ["hipStream_t other;", "// streaming loads", "hipStreamCreate(&s);"])
def test_any_other_mention_of_the_word_is_refused_with_its_line(extra: str) -> None:
    with pytest.raises(CandidateRefusedError, match="line"):
        submission_of(spec(HIP + extra, Language.HIP))


@pytest.mark.parametrize("text", ['"""', "'''\\", "\x00", "é\n" * 3, "} \\ {braces} %s"])
def test_text_that_is_odd_stays_inside_its_string(text: str) -> None:
    submitted = submission_of(spec(f"// {text}\n{HIP}", Language.HIP))
    compile(submitted, "submission.py", "exec")


@pytest.mark.parametrize("language", [Language.CPP, Language.CUDA])
def test_languages_that_kernelbots_mi300_cannot_run_are_refused(language: Language) -> None:
    with pytest.raises(CandidateRefusedError, match=language.value):
        submission_of(spec("void f() {}", language))


def test_python_that_does_not_parse_is_refused() -> None:
    with pytest.raises(CandidateRefusedError):
        submission_of(spec("def custom_kernel(", Language.PYTHON))


def test_a_worker_for_kernelbot_is_started_only_with_an_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPCORN_API_URL", raising=False)
    assert "kernelbot" not in [part.name for part in worker_parts(["cpu"], tmp_path)]
    monkeypatch.setenv("POPCORN_API_URL", "https://kernelbot.example")
    monkeypatch.setenv("POPCORN_CLI_ID", "someone")
    (part,) = [part for part in worker_parts(["cpu"], tmp_path) if part.name == "kernelbot"]
    assert any("kernelbot.gfx942" in word for word in part.command) and "someone" not in " ".join(part.command)
