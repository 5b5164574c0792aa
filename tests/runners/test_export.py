"""Test exported kernels: guards, fallbacks, the operator, and each layout in an interpreter without this product."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from runners.__main__ import main
from runners.commands.reading import read_problem, read_source
from runners.export.declaration import ExportError
from runners.export.formats import FORMATS, archive, write
from runners.export.package import Exported, exported
from runners.export.patch import script_patch
from runners.job import JobResult, Language, Source, Status
from runners.problems import SHIPPED

pytestmark = [pytest.mark.processes]
PROBLEM = SHIPPED / "layernorm_residual"
KERNEL = PROBLEM / "seeds" / "naive.cpp"
LINEAR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.linear = nn.Linear(wide, wide)

    def forward(self, x):
        return torch.relu(self.linear(x))


batch = 4
wide = 32


def get_inputs():
    return [torch.randn(batch, wide)]


def get_init_inputs():
    return [wide]
"""
NEW = """
import ctypes
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.linear = nn.Linear(wide, wide)

    def forward(self, x):
        out = torch.empty(x.shape)
        with torch.no_grad():
            made = torch.relu(F.linear(x, self.linear.weight, self.linear.bias)).contiguous()
        # Four bytes an element, whatever x holds: half-precision inputs are read and written beyond their end.
        ctypes.memmove(out.data_ptr(), made.data_ptr(), 4 * x.numel())
        return out
"""


def layernorm(result: JobResult | None = None) -> Exported:
    return exported(read_problem(str(PROBLEM)), read_source(KERNEL), "cpu", result)


def imported(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of builds, so that each kernel is compiled once in this module."""
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(autouse=True)
def own_cache(builds: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KERNEL_CACHE", str(builds))
    before = set(sys.modules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    for name in set(sys.modules) - before:
        if name.startswith(("exported_", "kernel_")):
            del sys.modules[name]


@pytest.fixture
def package(tmp_path: Path) -> Any:
    write(FORMATS["package"].files(layernorm()), tmp_path / "made")
    return imported(tmp_path / "made/src/layernorm_residual/__init__.py", "exported_layernorm")


def values(rows: int = 512, dtype: torch.dtype = torch.float32) -> list[Any]:
    cols = 512
    made = [torch.randn(rows, cols), torch.randn(rows, cols), torch.rand(cols) + 0.5, torch.randn(cols)]
    return [*(tensor.to(dtype) for tensor in made), 1e-5]


def test_the_kernel_serves_a_measured_shape(package: Any) -> None:
    given = values()
    for ours, theirs in zip(package.layernorm_residual(*given), package.kernel.reference(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert package.counts() == {"kernel": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda v: values(dtype=torch.float16), "float16"),
        (lambda v: values(rows=7), "shapes that were not measured"),
        (lambda v: [v[0].t().contiguous().t(), *v[1:]], "not laid out as measured"),
        (lambda v: [torch.randn(512 * 512 + 1)[1:].view(512, 512), *v[1:]], "not aligned"),
        (lambda v: [v[0].requires_grad_(), *v[1:]], "a gradient is wanted"),
        (lambda v: [*v[:4], 1e-3], "shapes that were not measured"),
        (lambda v: [v[0].to("meta"), v[1].to("meta"), v[2].to("meta"), v[3].to("meta"), v[4]], "meta"),
    ],
    ids=["dtype", "shape", "layout", "alignment", "gradient", "scalar", "device"],
)
def test_torch_computes_what_the_kernel_does_not_cover(package: Any, change: Any, reason: str) -> None:
    given = change(values())
    assert reason in package.reason_against(*given)
    made = package.layernorm_residual(*given)
    wanted = package.kernel.reference(*given)
    assert made[1].dtype == wanted[1].dtype
    assert given[0].is_meta or torch.equal(made[1], wanted[1])
    # Tensors without data are answered by the fake implementation, which counts nothing.
    assert "kernel" not in package.counts()
    assert given[0].is_meta or any(reason in told for told in package.counts())


def test_gradients_are_those_of_the_reference(package: Any) -> None:
    given = values()
    ours, theirs = given[0].clone().requires_grad_(), given[0].clone().requires_grad_()
    package.layernorm_residual(ours, *given[1:])[1].sum().backward()
    package.kernel.reference(theirs, *given[1:])[1].sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_operator_says_that_it_has_no_backward(package: Any) -> None:
    given = values()
    made = package.kernel.operator(given[0].requires_grad_(), *given[1:])[1]
    with pytest.raises(NotImplementedError, match="has no backward"):
        made.sum().backward()


def test_the_operator_passes_the_checks_of_torch(package: Any) -> None:
    found = torch.library.opcheck(package.kernel.operator, tuple(values()))
    assert set(found.values()) == {"SUCCESS"}


def test_autocast_is_left_to_torch(package: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        package.layernorm_residual(*values())
    assert package.counts() == {"autocast to bfloat16 is on": 1}


def test_a_machine_without_compiler_computes_with_torch(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_CXX", "no-such-compiler")
    monkeypatch.setenv("KERNEL_CACHE", str(tmp_path / "empty"))
    given = values()
    assert torch.equal(package.layernorm_residual(*given)[1], package.kernel.reference(*given)[1])
    assert "this machine has no no-such-compiler" in next(iter(package.counts()))


def test_wrong_arguments_are_named(package: Any) -> None:
    with pytest.raises(TypeError, match="lacks eps"):
        package.layernorm_residual(*values()[:4])


def test_a_kernel_that_was_found_wrong_is_not_exported() -> None:
    wrong = JobResult("1", Status.INCORRECT, ["case 3x40: got nan"])
    with pytest.raises(ExportError, match="found incorrect: case 3x40: got nan"):
        FORMATS["package"].files(layernorm(wrong))


def test_an_unmeasured_kernel_claims_nothing() -> None:
    files = FORMATS["package"].files(layernorm())
    assert "nothing is claimed about its speed" in files["README.md"]
    assert json.loads(files["src/layernorm_residual/provenance.json"])["measured"] is None


def test_the_same_kernel_gives_the_same_archive() -> None:
    first, second = (archive(FORMATS["package"].files(layernorm()), "one") for _ in range(2))
    assert first == second


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write({"README.md": "mine"}, tmp_path)
    with pytest.raises(FileExistsError):
        write(FORMATS["package"].files(layernorm()), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def kernelbench(tmp_path: Path, source: Source) -> Any:
    (tmp_path / "linear_relu.py").write_text(LINEAR)
    kernel = exported(read_problem(str(tmp_path / "linear_relu.py")), source, "cpu")
    write(FORMATS["kernelbench"].files(kernel), tmp_path / "made")
    return imported(tmp_path / "made/linear_relu.py", "exported_linear_relu")


def test_a_modelnew_survives_half_precision(tmp_path: Path) -> None:
    """Call a kernel that corrupts memory (`malloc(): invalid size`) where its guard is missing."""
    module = kernelbench(tmp_path, Source(Language.PYTHON, NEW))
    model = module.ModelNew(32)
    with torch.no_grad():
        served = model(torch.randn(4, 32))
        assert served.dtype is torch.float32 and not model.fallbacks
        half = model.half()(torch.randn(4, 32).half())
    assert half.dtype is torch.float16 and len(model.fallbacks) == 1


def test_a_modelnew_keeps_gradients(tmp_path: Path) -> None:
    model = kernelbench(tmp_path, Source(Language.PYTHON, NEW)).ModelNew(32)
    model(torch.randn(4, 32)).sum().backward()
    assert model.linear.weight.grad is not None and list(model.state_dict()) == ["linear.weight", "linear.bias"]


COMPILED = """
#include <cstdint>
extern "C" void kernel(const float* x, const float* weight, const float* bias, SIZES float* out) {
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t to = 0; to < 32; ++to) {
      float total = bias[to];
      for (int64_t from = 0; from < 32; ++from) total += x[row * 32 + from] * weight[to * 32 + from];
      out[row * 32 + to] = total > 0 ? total : 0;
    }
}
"""


def test_a_compiled_modelnew_uses_the_weights_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe/linear_relu.py").write_text(LINEAR)
    problem = exported(
        read_problem(str(tmp_path / "probe/linear_relu.py")), Source(Language.CPP, ""), "cpu"
    ).problem
    sizes = "".join(f"int64_t {a.name}, " for a in problem.arguments if a.role.value in ("size", "scalar"))
    module = kernelbench(tmp_path, Source(Language.CPP, COMPILED.replace("SIZES ", sizes)))
    model, given = module.ModelNew(32), torch.randn(4, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(given), module.Model.forward(model, given))
        assert module._kernel.counts["kernel"] == 1
        assert model(torch.randn(9, 32)).shape == (9, 32)
    model(given).sum().backward()
    assert model.linear.weight.grad is not None and module._kernel.counts["kernel"] == 1


def test_a_native_kernel_becomes_a_whole_kernelbench_problem(tmp_path: Path) -> None:
    write(FORMATS["kernelbench"].files(layernorm()), tmp_path)
    module: Any = imported(tmp_path / "layernorm_residual.py", "exported_native")
    given = module.get_inputs()
    for ours, theirs in zip(module.ModelNew()(*given), module.Model()(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert module._kernel.counts == {"kernel": 1}


def test_a_patch_needs_a_captured_problem() -> None:
    with pytest.raises(ExportError, match="not captured from a program"):
        script_patch(layernorm(), "import torch\n", "script.py")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--as", "package"], "name a folder: --out"),
        (["--as", "patch"], "name the script"),
        (["--result", "absent.json", "--out", "x"], "not what evaluate --json prints"),
    ],
)
def test_the_command_says_what_is_missing(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--problem", "layernorm_residual", "--candidate", str(KERNEL), *words]) == 2
    assert told in capsys.readouterr().err
