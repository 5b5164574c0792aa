"""Test capture: what a program calls, which of it becomes a problem, and that a kernel of it returns to the program."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runners.__main__ import main
from runners.capture import Captured, capture
from runners.capture.drafting import CaptureError
from runners.capture.extraction import identifier
from runners.commands.reading import read_problem
from runners.endtoend import measuring
from runners.export.formats import FORMATS, write
from runners.export.package import exported
from runners.export.patch import script_patch
from runners.job import Language, Source
from runners.problems import load, open_bundle
from runners.problems.base import Purpose

pytestmark = [pytest.mark.processes]


class Scaled(nn.Module):
    def __init__(self, width: int, by: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight) * self.by


class Stack(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def captured(run: Callable[[], Any]) -> Captured:
    with capture() as found, torch.no_grad():
        run()
    return found


def obstacle(run: Callable[[], Any], title: str) -> str:
    return next(row.obstacle for row in captured(run).rows if row.title.endswith(title))


def problem_of(folder: Path, run: Callable[[], Any], name: str) -> Any:
    found = captured(run)
    (written,) = found.write(folder, wanted=[name])
    return open_bundle(load(written.folder))


def test_a_module_becomes_a_problem_with_its_real_shapes(tmp_path: Path) -> None:
    model = Stack(Scaled(64), Scaled(64))
    problem = problem_of(tmp_path, lambda: [model(torch.randn(n, 64)) for n in (8, 8, 32)], "Scaled")
    cases = problem.cases("cpu", Purpose.TEST)
    assert {tuple(case.sizes.values()) for case in cases} == {(8, 64), (32, 64)}
    inputs = problem.make_inputs(cases[0], 1, "captured")
    assert list(inputs.values) == ["x", "weight"]
    (out,) = problem.reference(inputs)
    torch.testing.assert_close(out, torch.tanh(inputs.values["x"] * inputs.values["weight"]) * 2.0)


def test_calls_with_other_settings_are_not_mixed_up(tmp_path: Path) -> None:
    model = Stack(*(Scaled(64, by) for by in (2.0, 2.0, 2.0, 3.0)))
    found = captured(lambda: [model(torch.randn(512, 64)) for _ in range(3)])
    (written,) = found.write(tmp_path, wanted=["Scaled"])
    calls = json.loads((written.folder / "calls.json").read_text())["calls"]
    assert len(calls) == 1 and written.left_out


def test_an_operator_becomes_a_problem_for_any_shape(tmp_path: Path) -> None:
    weight = torch.ones(64)
    problem = problem_of(tmp_path, lambda: F.layer_norm(torch.randn(16, 64), (64,), weight), "layer_norm")
    assert "torch.nn.functional.layer_norm(" in problem.reference_source
    assert problem.distributions(problem.cases("cpu", Purpose.TEST)[0])[0] == "captured"


def test_permuted_tensors_are_passed_as_they_lie_in_memory(tmp_path: Path) -> None:
    x = torch.randn(2, 16, 4, 8)
    problem = problem_of(tmp_path, lambda: F.softmax(x.transpose(1, 2), -2), "softmax")
    (case,) = problem.cases("cpu", Purpose.TEST)
    inputs = problem.make_inputs(case, 0, "captured")
    stored = next(iter(inputs.values.values()))
    assert stored.shape == (2, 16, 4, 8)
    (out,) = problem.reference(inputs)
    torch.testing.assert_close(out, F.softmax(stored.transpose(1, 2), -2))


def test_small_integers_are_the_programs_own(tmp_path: Path) -> None:
    table, words = torch.randn(50, 8), torch.randint(50, (4, 7))
    problem = problem_of(tmp_path, lambda: F.embedding(words, table), "embedding")
    inputs = problem.make_inputs(problem.cases("cpu", Purpose.TEST)[0], 3, "captured")
    assert torch.equal(inputs.values["input"], words)


def test_tied_weights_are_one_argument(tmp_path: Path) -> None:
    first = Scaled(64)
    second = Scaled(64)
    second.weight = first.weight
    model = Stack(first, second)
    problem = problem_of(tmp_path, lambda: model(torch.randn(32, 64)), "Stack")
    assert [a.name for a in problem.arguments if a.role.value == "input"] == ["x", "parts_0_weight"]


class Inplace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


class View(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1)


class Odd(nn.Module):
    def forward(self, x: torch.Tensor, kind: object) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("module", "given", "told"),
    [
        (Inplace(), (), "changes a tensor in place"),
        (View(), (), "returns a view of its input"),
        (nn.Dropout(0.5), (), "draws random numbers; call model.eval()"),
        (nn.BatchNorm1d(8), (), "changes a tensor in place"),
        (Odd(), (object(),), "takes an object of class object"),
    ],
    ids=["in place", "view", "random", "running statistics", "object"],
)
def test_what_no_kernel_may_do_is_said(module: nn.Module, given: tuple[Any, ...], told: str) -> None:
    assert told in obstacle(lambda: module(torch.randn(8, 8), *given), type(module).__name__)


def test_calls_under_autocast_become_a_problem_of_their_own_that_converts_like_them(tmp_path: Path) -> None:
    model, x = nn.Linear(16, 24), torch.randn(8, 16)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(x)
        model(x)

    found = captured(run)
    rows = {row.calls[0].autocast: row for row in found.rows if row.title.endswith("Linear")}
    assert set(rows) == {"", "bfloat16"} and not any(row.obstacle for row in rows.values())
    written = found.write(tmp_path, wanted=[str(1 + found.rows.index(row)) for row in rows.values()])
    problems = {(read := open_bundle(load(one.folder))).autocast: read for one in written}
    types = {cast: [a.dtype for a in read.arguments if a.shape] for cast, read in problems.items()}
    assert types == {"": ["float32"] * 4, "bfloat16": ["float32"] * 3 + ["bfloat16"]}
    # The usual tolerance of the type, or four times what this reference loses, which its random weights decide.
    assert 2e-2 <= problems["bfloat16"].tolerance("bfloat16").rtol < 0.2


@pytest.mark.parametrize("kind", ["linear", "GELU"])
def test_a_problem_captured_under_autocast_is_evaluated_like_any_other(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    part: nn.Module = nn.Linear(32, 32) if kind == "linear" else nn.GELU()

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.nn.functional.linear(part(torch.randn(8, 32)), torch.ones(32, 32))

    problem = problem_of(tmp_path, run, kind)
    (case, *_) = problem.cases("cpu", Purpose.TEST)
    inputs = problem.make_inputs(case, 1, "captured")
    own, exact = problem.reference(inputs), problem.expected(inputs)
    assert exact[0].dtype is torch.float64
    torch.testing.assert_close(own[0].double(), exact[0], rtol=0.03, atol=0.3)


def test_a_program_whose_costly_calls_all_have_an_obstacle_is_told_where_the_reasons_are(tmp_path: Path) -> None:
    x = torch.randn(64, 64)
    found = captured(lambda: x.add_(1))
    for share, told in (
        (0.5, "none of the costly calls can become a problem; the table lists the reasons"),
        (0.001, "a hundredth"),
    ):
        for row in found.rows:
            row.share = share  # what the machine measured says nothing here
        with pytest.raises(CaptureError, match=told):
            found.write(tmp_path)


class Added(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) + y


class IntoInput(nn.Module):
    def forward(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=out)


def test_shapes_that_change_from_call_to_call_become_the_most_frequent_cases(tmp_path: Path) -> None:
    model = Scaled(16)

    def run() -> None:
        for rows in range(1, 21):
            for _ in range(60 if rows == 7 else 1):
                model(torch.randn(rows, 16))

    problem = problem_of(tmp_path, run, "Scaled")
    tested = problem.cases("cpu", Purpose.TEST) + problem.cases("cpu", Purpose.BENCHMARK)
    # Twenty shapes are too many for one problem, and the one that is called most is not the one to leave out.
    assert len({tuple(sorted(case.sizes.items())) for case in tested}) <= 8
    assert any(7 in case.sizes.values() for case in problem.cases("cpu", Purpose.BENCHMARK))


def test_one_tensor_given_twice_stays_two_arguments_that_a_kernel_may_not_tell_apart(tmp_path: Path) -> None:
    model, x = Added(), torch.randn(8, 16)
    problem = problem_of(tmp_path, lambda: model(x, x), "Added")
    assert [a.name for a in problem.arguments if a.role.value == "input"] == ["x", "y"]


def test_a_result_written_into_an_input_is_no_kernel() -> None:
    told = obstacle(lambda: IntoInput()(torch.randn(4, 4), torch.empty(4, 4)), "IntoInput")
    assert "in place" in told or "view of its input" in told


def test_inputs_too_large_for_a_problem_are_refused_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.capture.drafting.MOST_BYTES", 1 << 10)
    found = captured(lambda: Scaled(64)(torch.randn(64, 64)))
    with pytest.raises(CaptureError, match="GiB are the limit"):
        found.write(tmp_path, wanted=["Scaled"])


def test_a_program_that_computes_nothing_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="called no function of torch that computes"):
        captured(lambda: sum(range(10))).write(tmp_path)


def test_an_unknown_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nothing that was called is named 'nonsense'"):
        captured(lambda: torch.exp(torch.randn(8))).write(tmp_path, wanted=["nonsense"])


def test_watching_changes_neither_results_nor_random_numbers() -> None:
    model = Stack(Scaled(16), nn.Dropout(0.5))
    torch.manual_seed(3)
    plain = model(torch.randn(4, 16))
    torch.manual_seed(3)
    seen = []
    with capture():
        seen.append(model(torch.randn(4, 16)))
    assert torch.equal(plain, seen[0])
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"


@pytest.mark.parametrize(
    ("name", "made"), [("input", "input"), ("float", "float_"), ("lambda", "lambda_"), ("3.weight", "x3_weight")]
)
def test_names_are_those_of_c_and_python(name: str, made: str) -> None:
    assert identifier(name, lambda _: False) == made


SCRIPT = """
import sys
import torch
from torch import nn

assert sys.argv[1:] == ["--wide"], "give --wide"


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 256))

    def forward(self, x):
        return torch.tanh(x * self.weight)


torch.manual_seed(0)
MODEL, X = Scaled(), torch.randn(64, 256)


def main():
    with torch.no_grad():
        return MODEL(X)


if __name__ == "__main__":
    RESULT = main()
    print("done")
"""
KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" void scaled(const float* x, const float* weight, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = std::tanh(x[i] * weight[i % cols]);
}
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def packaged(script: Path, kernel: str = KERNEL) -> Path:
    """Capture the script, and export a kernel of its problem."""
    words = ["--call", "main", "--select", "Scaled", "--out", str(script.parent / "problems"), "--", "--wide"]
    assert main(["capture", str(script), *words]) == 0
    bundle = read_problem(str(script.parent / "problems/scaled"))
    write(
        FORMATS["package"].files(exported(bundle, Source(Language.CPP, kernel), "cpu")), script.parent / "package"
    )
    return script.parent / "package"


def endtoend(script: Path, package: Path, *words: str) -> tuple[int, dict[str, Any]]:
    often = ["--sessions", "1", "--rounds", "1", *words]
    code = main(["endtoend", str(script), "--package", str(package), *often, "--", "--wide"])
    return code, json.loads((package / "endtoend.json").read_text())


def once_on_each_side(child: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that starts a process for each side, and gives what it saw when it is asked again."""
    seen: dict[str, tuple[dict[str, Any], bytes]] = {}

    def seen_once(order: Any, paths: Any, names: Any, folder: Path, more: dict[str, str]) -> dict[str, Any]:
        side, tensors = more["side"], Path(more["tensors"])
        if side not in seen:
            seen[side] = child(order, paths, names, folder, more), tensors.read_bytes()
        tensors.write_bytes(seen[side][1])
        return seen[side][0]

    return seen_once


def test_a_kernel_returns_to_the_program_that_it_came_from(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packaged(script)
    code, report = endtoend(script, package, "--call", "main")
    assert code == 0 and report["agrees"] and report["calls"]["scaled"] > 0 and not report["missed"]["scaled"]
    # The same as a script that runs from its start to its end, once on each side; the orders in which both take turns
    # would start eight processes.
    monkeypatch.setattr(measuring, "_child", once_on_each_side(measuring._child))
    code, report = endtoend(script, package)
    assert code == 0 and report["agrees"] and report["calls"] == {"scaled": 2} and report["results"] == 2
    assert "the kernel served 2 calls" in capsys.readouterr().out


CASTING = """
import sys

import torch
import torch.nn as nn

assert sys.argv[1:] == ["--wide"]
torch.manual_seed(0)
MODEL, X = nn.Linear(256, 32, bias=False), torch.randn(64, 256)


def main():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return MODEL(X)
"""
BARE = """

@torch.autocast("cpu", enabled=False)
def bare():
    return MODEL(X)
"""
CASTING_KERNEL = """
#include <cstdint>
#include <cstring>
static float rounded(float v) {
  uint32_t bits; std::memcpy(&bits, &v, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&v, &bits, 4); return v;
}
extern "C" void linear(const float* x, const float* weight, uint16_t* out, int64_t rows, int64_t depth, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      float sum = 0;
      for (int64_t d = 0; d < depth; ++d) sum += rounded(x[r * depth + d]) * rounded(weight[c * depth + d]);
      sum = rounded(sum);
      uint32_t bits; std::memcpy(&bits, &sum, 4);
      out[r * cols + c] = uint16_t(bits >> 16);
    }
}
"""


def test_a_kernel_captured_under_autocast_serves_calls_under_it_alone(script: Path) -> None:
    script.write_text(CASTING)
    words = ["--call", "main", "--select", "Linear", "--out", str(script.parent / "problems"), "--", "--wide"]
    assert main(["capture", str(script), *words]) == 0
    kernel = exported(
        read_problem(str(script.parent / "problems/linear")), Source(Language.CPP, CASTING_KERNEL), "cpu"
    )
    write(FORMATS["package"].files(kernel), script.parent / "package")
    # The same call under it and without it.
    script.write_text(CASTING.replace("        return MODEL(X)", "        return MODEL(X), bare()") + BARE)
    code, report = endtoend(script, script.parent / "package", "--call", "main")
    assert code == 0 and report["agrees"] and report["calls"]["linear"] > 0
    (reason,) = report["missed"]["linear"]
    assert "autocast to bfloat16 is off" in reason
    # One without for each one under it.
    assert report["missed"]["linear"][reason] == report["calls"]["linear"]


def test_a_wrong_kernel_is_found_end_to_end(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = packaged(script, KERNEL.replace("out[i] =", "out[i] = 1.01f *"))
    code, report = endtoend(script, package, "--call", "main")
    assert code == 4 and not report["agrees"]
    assert "WRONG: the results differ" in capsys.readouterr().out


def test_a_kernel_that_is_never_called_is_no_gain(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = packaged(script)
    script.write_text(SCRIPT.replace("torch.randn(64, 256)", "torch.randn(63, 256)"))
    code, report = endtoend(script, package, "--call", "main")
    assert code == 5 and report["calls"] == {"scaled": 0}
    told = capsys.readouterr().out
    assert "THE KERNEL WAS NEVER CALLED" in told and "shapes that were not measured: x [63, 256]" in told


def test_a_kernel_that_kills_the_program_is_told(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = packaged(script, KERNEL.replace("out[i] =", "*(volatile float*)8 = out[i] ="))
    assert main(["endtoend", str(script), "--package", str(package), "--call", "main", "--", "--wide"]) == 1
    assert "killed by SIGSEGV" in capsys.readouterr().err


def test_the_patch_makes_the_script_use_the_package(script: Path) -> None:
    bundle_of = packaged(script).parent / "problems/scaled"
    kernel = exported(read_problem(str(bundle_of)), Source(Language.CPP, KERNEL), "cpu")
    patch = script_patch(kernel, SCRIPT, "script.py")
    added = [line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
    added = [line for line in added if line]
    assert added[0].startswith("import scaled") and added[1] == "scaled.activate()"
    assert patch.index("+import scaled") < patch.index(" import sys")


def test_a_script_that_needs_arguments_is_told_where_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "needs.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()\n"
    )
    assert main(["capture", str(tmp_path / "needs.py")]) == 2
    assert "If it needs arguments, give them after --" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [(["absent.py"], "no such file"), (["{script}", "--call", "nothing"], "defines no function nothing")],
)
def test_a_program_that_cannot_run_is_named(
    words: list[str], told: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("x = 1\n")
    assert main(["capture", *(word.format(script=script) for word in words)]) == 2
    assert told in capsys.readouterr().err


def test_a_package_of_nothing_captured_cannot_be_activated(tmp_path: Path) -> None:
    kernel = exported(
        read_problem("softmax_rows"), Source(Language.PYTHON, "def custom_kernel(x):\n    return x\n"), "cpu"
    )
    write(FORMATS["package"].files(kernel), tmp_path)
    sys.path.insert(0, str(tmp_path / "src"))
    try:
        import softmax_rows  # type: ignore[import-not-found]

        with warnings.catch_warnings(), pytest.raises(RuntimeError, match="was not captured from a program"):
            softmax_rows.activate()
    finally:
        sys.path.remove(str(tmp_path / "src"))
        for name in [name for name in sys.modules if name.startswith("softmax_rows")]:
            del sys.modules[name]
