"""Test what is compiled, without the device, of torch extensions that a module would compile on it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runners.backends import BuildRequest, extensions
from runners.backends.extensions import Extension, extensions_in
from runners.errors import InfraFailure
from runners.job import BuildReport, Language, Limits, ProblemBundle, Source
from runners.problems import load, open_bundle
from runners.targets import target
from runners.verbs.building import build

pytestmark = [pytest.mark.processes, pytest.mark.split, pytest.mark.unchanged()]

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(4096)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
{includes}
__global__ void doubled(const float* x, float* out, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
}}
torch::Tensor twice(torch::Tensor x) {{
  auto out = torch::empty_like(x);
  doubled<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out;
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("twice", &twice, "Doubles.", py::arg("x")); }}
'''
extension = load_inline("doubling", "torch::Tensor twice(torch::Tensor x);", SOURCE, extra_cuda_cflags=["-O3", "-lm"])


class {entry}(torch.nn.Module):
    def forward(self, x):
        return extension.twice(x)
"""
BODY = "if (i < n) out[i] = 2 * x[i];"
NVCC = pytest.mark.nvcc


def candidate(body: str = BODY, includes: str = "#include <torch/extension.h>", entry: str = "ModelNew") -> str:
    """Return a module whose kernel has that body."""
    return CANDIDATE.format(body=body, includes=includes, entry=entry)


def report_of(text: str, target_key: str = "sm_90") -> BuildReport:
    """Build a module for the problem of doubling, without the device."""
    bundle = ProblemBundle("doubling", "kernelbench", "doubling.py", {"doubling.py": REFERENCE})
    return build(Source(Language.PYTHON, text), target(target_key), open_bundle(bundle))


@NVCC
def test_kernels_of_an_extension_are_compiled_and_described() -> None:
    report = report_of(candidate(includes="#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>"))
    assert report.ok, report.log
    (kernel,) = report.kernels
    assert "doubled" in kernel.name and kernel.registers
    assert "twice of an extension runs on the device only" in report.log


@NVCC
def test_what_the_compiler_refuses_in_a_kernel_is_a_failed_build_with_the_line_of_its_text() -> None:
    report = report_of(candidate(body="out[i] = x[j];"))
    assert not report.ok
    assert report.log == 'doubling, CUDA source 1(5): error: identifier "j" is undefined'


@NVCC
@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "includes", "said"),
    [
        (BODY, "#include <torch/extension.h>\n#include <cutlass/cutlass.h>", "needs cutlass/cutlass.h"),
        (BODY + "\n}\nvoid used() { cublasCreate(nullptr);", "#include <cublas_v2.h>", "needs a library"),
        (BODY + "\n}\nvoid used() { py::list found;", "#include <torch/extension.h>", "needs a library"),
    ],
)
def test_libraries_that_are_not_here_leave_the_extension_to_the_device(body: str, includes: str, said: str) -> None:
    report = report_of(candidate(body, includes))
    assert report.ok and said in report.log


@NVCC
@pytest.mark.long
def test_what_the_assembler_refuses_is_a_failed_build() -> None:
    report = report_of(candidate(body="__shared__ float rows[100000]; rows[i] = x[i]; out[i] = rows[i ^ 1];"))
    assert not report.ok and "too much shared data" in report.log


@NVCC
@pytest.mark.long
def test_a_module_for_a_native_problem_is_not_refused_for_what_only_a_device_can_run() -> None:
    text = candidate(entry="Unused") + "\ndef custom_kernel(*inputs):\n    return extension.twice(inputs[0])\n"
    report = build(Source(Language.PYTHON, text), target("sm_90"), open_bundle(load("softmax_rows")))
    assert report.ok and len(report.kernels) == 1


def absent() -> str:
    raise InfraFailure("no nvcc: install the CUDA toolkit")


@pytest.mark.parametrize(("key", "said"), [("sm_90", "no nvcc"), ("gfx942", "on its own machine")])
def test_an_extension_that_cannot_be_compiled_here_is_refused_for_nothing(
    key: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "nvcc", absent)
    request = BuildRequest(Source(Language.PYTHON, candidate()), "", key, tmp_path, Limits())
    found = extensions.compiled(request, [Extension("doubling", ("int a;",), ())], target(key))
    assert said in found.unfinished and not found.refusal and not found.kernels


@pytest.mark.long
def test_without_a_compiler_the_extension_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "nvcc", absent)
    report = report_of(candidate())
    assert report.ok and not report.kernels and "no nvcc" in report.log


@pytest.mark.long
def test_extensions_for_amd_are_left_to_the_device() -> None:
    report = report_of(candidate(), "gfx942")
    assert report.ok and not report.kernels and "on its own machine" in report.log


def test_a_module_without_extensions_is_only_read() -> None:
    report = report_of("import torch\nclass ModelNew(torch.nn.Module):\n    pass\nraise SystemExit\n")
    assert report.ok and not report.log


HOSTILE: list[Any] = [
    None, "text", [None, 3], [{"name": 3, "texts": "no list"}], [{"texts": [3, None]}], [{}] * 9,
    [{"name": "big", "texts": ["x" * (2 << 20)], "flags": []}],
]  # fmt: skip


@pytest.mark.parametrize("noted", HOSTILE)
def test_a_report_that_makes_no_sense_names_no_extension(noted: Any) -> None:
    assert extensions_in({"extensions": noted}) == []


def test_names_and_flags_of_a_report_cannot_reach_the_command_line(tmp_path: Path) -> None:
    flags = ["-O3", "--compiler-bindir=/tmp", "-Xcompiler", "-fplugin=x.so", "@file", "-DTILE=32", "-I/etc", 7]
    noted = {"name": 'x" -o /etc', "texts": ["int a;"], "flags": flags}
    (found,) = extensions_in({"extensions": [noted]})
    assert found.name == "x___o__etc"
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(extensions, "nvcc", lambda: "nvcc")
        command = extensions._command(found, target("sm_90"))
    assert {"-O3", "-DTILE=32"} < set(command)
    assert not {"--compiler-bindir=/tmp", "-Xcompiler", "-fplugin=x.so", "@file", "-I/etc"} & set(command)


@pytest.mark.parametrize(
    ("flags", "architectures", "number"),
    [
        ([], "", "90"),
        (["-gencode=arch=compute_90,code=sm_90"], "", "90"),
        (["-gencode=arch=compute_90a,code=sm_90a"], "", "90a"),
        (["-arch=sm_90a"], "", "90a"),
        ([], "9.0a", "90a"),
        ([], "8.0;9.0a", "90a"),
        ([], "9.0+PTX", "90"),
    ],
)
def test_an_extension_is_compiled_for_the_architecture_that_torch_would_take(
    flags: list[str], architectures: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runners.backends import triton_record

    monkeypatch.setattr(extensions, "nvcc", lambda: "nvcc")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", architectures)
    pretended = {
        "device_count": 1, "get_device_capability": (9, 0), "get_arch_list": ["sm_90"],
        "get_device_properties": SimpleNamespace(gcnArchName=""),
    }  # fmt: skip
    for name, value in pretended.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    chosen = (*flags, *triton_record.architectures(flags))
    command = extensions._command(Extension("one", ("int a;",), chosen), target("sm_90"))
    assert f"arch=compute_{number},code=sm_{number}" in command


@pytest.mark.parametrize(
    ("flags", "misses"),
    [
        (
            ["-O3", "-DTILE=32", "-I/opt/x", "-gencode", "arch=compute_90,code=sm_90", "-lcublas", "-Xptxas", "-v"],
            False,
        ),
        (["-DNAME='x'"], True),
        (["-include", "all.h"], True),
        (["-Xcompiler", "-DTILE=4"], True),
    ],
)
def test_a_text_that_is_compiled_without_a_flag_that_matters_is_not_refused(flags: list[str], misses: bool) -> None:
    extension = Extension("one", ("int a;",), tuple(flags))
    refusal, unfinished = extensions._why('one, CUDA source 1(14): error: expected a ";"', extension)
    assert bool(unfinished) is misses and bool(refusal) is not misses


def test_texts_and_flags_are_noted_however_they_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS, load, load_inline

    from runners.backends.triton_record import Recorder

    (tmp_path / "one.cu").write_text("int one;")
    (tmp_path / "one.cpp").write_text("int other;")
    monkeypatch.setattr("runners.backends.triton_record.architectures", lambda flags: [])
    recorder = Recorder(most_shared=1 << 10)
    recorder.noting(load_inline)("inline", ["int other;"], ["int one;", "int two;"], extra_cuda_cflags=["-O3"])
    files = [str(tmp_path / "one.cpp"), str(tmp_path / "one.cu")]
    recorder.noting(load)("files", files, None, ["-DTILE=4"])
    recorder.noting(load_inline)(name="text", cpp_sources="", cuda_sources="int one;")
    found = extensions_in({"extensions": recorder.extensions})
    assert [(one.name, one.texts, one.flags[len(COMMON_NVCC_FLAGS) :]) for one in found] == [
        ("inline", ("int one;", "int two;"), ("-O3",)),
        ("files", ("int one;",), ("-DTILE=4",)),
        ("text", ("int one;",), ()),
    ]


def test_an_extension_is_compiled_whole_or_not_at_all() -> None:
    whole = {"name": "one", "texts": ["int a;"] * 2, "flags": ["-O3"]}
    assert len(extensions_in({"extensions": [whole]})) == 1
    for part in ({"texts": ["int a;"] * 17}, {"texts": ["int a;", "x" * (2 << 20)]}, {"flags": ["-O3"] * 65}):
        assert extensions_in({"extensions": [whole | part]}) == []


LOGS = [
    ("k.cu:3:10: fatal error: cute/tensor.hpp: No such file or directory", "", "needs cute/tensor.hpp"),
    ('one, CUDA source 2(14): error: expected a ";"', 'one, CUDA source 2(14): error: expected a ";"', ""),
    ("torch/include/ATen/ATen.h(3): error: no such name", "", "was not compiled here"),
    ('one, CUDA source 1(2): error: identifier "cublasSgemm" is undefined', "", "needs a library"),
    (
        'one, CUDA source 1(2): error: namespace "pybind11" has no member "list"',
        "",
        "needs a library",
    ),
    ("ptxas error   : Entry function 'k' uses too much shared data", "ptxas error   : Entry function 'k'", ""),
    ("ptxas fatal   : Unresolved extern function 'f'", "ptxas fatal", ""),
    ("the compiler was stopped: it was not done after 300 s", "", "was not compiled here"),
]


@pytest.mark.parametrize(("log", "refusal", "unfinished"), LOGS)
def test_only_errors_that_are_surely_the_candidates_refuse_it(log: str, refusal: str, unfinished: str) -> None:
    found = extensions._why(f"warning\n{log}\n1 error detected", Extension("one", ("int a;",), ()))
    assert [bool(found[0]), bool(found[1])] == [bool(refusal), bool(unfinished)]
    assert refusal in found[0] and unfinished in found[1]
