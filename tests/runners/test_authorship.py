"""Test who does a candidate's work, read from its text and from kernel names."""

from __future__ import annotations

import pytest

from runners.harness.verdict import second_opinion
from runners.harness.verdict.library_calls import lacks_own_kernel, written_by_vendor
from runners.job import Language, Source

TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def rows(x, out, cols, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x))
"""
LOADED = """
from torch.utils.cpp_extension import load_inline
module = load_inline(name="k", cpp_sources="", functions=["rows"])
"""


@pytest.mark.parametrize(
    "text",
    [
        TRITON + "def custom_kernel(x):\n    rows[(1,)](x, x, 1, 2)\n    return x\n",
        TRITON + "def launch(x):\n    rows[(1,)](x, x, 1, 2)\n    return x\ncustom_kernel = launch\n",
        LOADED + "class ModelNew:\n    def forward(self, x):\n        return module.rows(x)\n",
        LOADED.replace("module =", "if True:\n    module =") + "def custom_kernel(x):\n    return module.rows(x)\n",
        "import ctypes\nrows = ctypes.CDLL('./k.so').rows\ndef custom_kernel(x):\n    rows(x.data_ptr())\n",
        "this is not Python (",
    ],
)
def test_candidate_that_reaches_its_own_kernel_is_not_flagged(text: str) -> None:
    assert not lacks_own_kernel(Source(Language.PYTHON, text))


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef custom_kernel(x):\n    return torch.softmax(x, -1)\n",
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n",
        TRITON + "def custom_kernel(x):\n    return torch.softmax(x, -1)\n",
        LOADED + "import torch\ndef custom_kernel(x):\n    return torch.softmax(x, -1)\n",
        "import torch, triton\ndef custom_kernel(x):\n    return torch.softmax(x, -1)\n",
        "import torch\ncustom_kernel = torch.compile(lambda x: x.softmax(-1))\n",
    ],
)
def test_candidate_that_leaves_the_work_to_torch_is_flagged(text: str) -> None:
    assert lacks_own_kernel(Source(Language.PYTHON, text))


@pytest.mark.parametrize(
    ("text", "flagged"),
    [
        ("#include <cublas_v2.h>\nvoid f() { cublasSgemm(); }", True),
        ('void* h = dlopen("libcudnn.so", 1);', True),
        ("#include <cublas_v2.h>\n__global__ void mine() {}", False),
        ("__global__ void mine() {}", False),
    ],
)
def test_vendor_library_without_a_device_kernel_is_flagged(text: str, flagged: bool) -> None:
    assert lacks_own_kernel(Source(Language.CUDA, text)) is flagged


def test_cpu_library_call_is_flagged_and_plain_loops_are_not() -> None:
    assert lacks_own_kernel(Source(Language.CPP, "#include <cblas.h>\nvoid f() { cblas_sgemm(); }"))
    assert not lacks_own_kernel(Source(Language.CPP, "void f(float* x) { x[0] = 1; }"))


def test_kernel_names_of_libraries_only_mean_no_own_kernel() -> None:
    library = ["void at::native::vectorized_elementwise_kernel<4>", "sm90_xmma_gemm_f32", "Cijk_Ailk_Bjlk_BBS"]
    assert written_by_vendor(library)
    assert not written_by_vendor([*library, "rows_kernel"])
    assert not written_by_vendor([])


def test_second_opinion_that_is_not_installed_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert second_opinion.opinions(Source(Language.PYTHON, "import torch")) == []


def test_answer_of_a_second_reader_is_not_trusted() -> None:
    assert second_opinion._rules("not json") == []
    assert second_opinion._rules('{"a": 1}') == []
    assert second_opinion._rules('["GOOD_RULE", 7, "<b>bad</b>"]') == ["GOOD_RULE"]
    assert (
        len(second_opinion._rules(str([f"R{n}" for n in range(100)]).replace("'", '"')))
        == second_opinion.MOST_RULES
    )


def test_another_reader_joins_by_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(second_opinion.READERS, "mine", lambda source: ["FOUND"] if "cheat" in source.text else [])
    assert "mine:FOUND" in second_opinion.opinions(Source(Language.PYTHON, "cheat"))
