"""Test exported layouts with the libraries that read them, each in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from runners.commands.reading import read_problem, read_source
from runners.export.formats import FORMATS, write
from runners.export.package import exported
from runners.export.provenance import Origin
from runners.problems import SHIPPED

# Each test makes an environment and asks PyPI; `make test-long` runs them.
pytestmark = [pytest.mark.processes, pytest.mark.long]
PROBLEM = SHIPPED / "layernorm_residual"
CALL = "torch.randn(512, 512), torch.randn(512, 512), torch.ones(512), torch.zeros(512), 1e-5"


class Environment:
    """Make a virtual environment that has only torch of this machine, which is too large to install again."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.folder = folder
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "torch_of_this_machine.pth").write_text(str(Path(torch.__file__).parents[1]))

    def install(self, *words: str) -> None:
        done = subprocess.run(
            [self.python, "-m", "pip", "install", "--quiet", *words], capture_output=True, text=True
        )
        if "No matching distribution" in done.stderr or "Temporary failure" in done.stderr:
            pytest.skip(f"PyPI cannot be reached: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr[-2000:]

    def run(self, *words: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "KERNEL_CACHE": str(self.folder / "cache"), "HOME": str(self.folder)}
        command = [str(self.python), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=self.folder)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout


@pytest.fixture
def fresh(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "fresh")


def made(form: str, folder: Path) -> Path:
    source = read_source(PROBLEM / "seeds" / "naive.cpp")
    kernel = exported(read_problem(str(PROBLEM)), source, "cpu", origin=Origin("Somebody", "Apache-2.0"))
    write(FORMATS[form].files(kernel), folder)
    return folder


def test_pip_installs_a_package_whose_own_tests_pass(fresh: Environment, tmp_path: Path) -> None:
    folder = made("package", tmp_path / "made")
    fresh.install("--no-deps", str(folder))
    fresh.install("pytest")
    assert fresh.run("-m", "layernorm_residual", "build").strip().endswith(".so")
    assert "passed" in fresh.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests"))


def test_hugging_face_kernels_loads_the_layout(fresh: Environment, tmp_path: Path) -> None:
    fresh.install("kernels")
    folder = made("huggingface", tmp_path / "made")
    told = fresh.run(
        "-c",
        "import pathlib, torch, kernels\n"
        f"loaded = kernels.get_local_kernel(pathlib.Path({str(folder)!r}), backend='cpu')\n"
        f"loaded.layernorm_residual({CALL})\nprint(loaded.counts())",
    )
    assert told.strip() == "{'kernel': 1}"


def test_flashinfer_bench_builds_and_runs_the_solution(fresh: Environment, tmp_path: Path) -> None:
    # Its own dependency flashinfer is for GPUs only; the schema and the builder of Python do without.
    fresh.install("--no-deps", "flashinfer-bench")
    fresh.install("pydantic", "safetensors", "docstring-parser", "apache-tvm-ffi")
    folder = made("flashinfer", tmp_path / "made")
    told = fresh.run(
        "-c",
        "import torch\n"
        "from flashinfer_bench.data import TraceSet\n"
        "from flashinfer_bench.compile.builders.python_builder import PythonBuilder\n"
        f"traces = TraceSet.from_path({str(folder)!r})\n"
        "((name, solutions),) = traces.solutions.items()\n"
        "runnable = PythonBuilder().build(traces.definitions[name], solutions[0])\n"
        f"print([tuple(out.shape) for out in runnable({CALL})], len(traces.workloads[name]))",
    )
    assert told.strip().splitlines()[-1] == "[(512, 512), (512, 512)] 3"


def test_a_package_needs_nothing_of_this_product(fresh: Environment, tmp_path: Path) -> None:
    made("package", tmp_path / "made")
    told = fresh.run(
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path / 'made/src')!r})\n"
        f"import torch, layernorm_residual\nlayernorm_residual.layernorm_residual({CALL})\n"
        "assert not any(name.partition('.')[0] in ('runners', 'optimizer') for name in sys.modules)\n"
        "print(layernorm_residual.counts())",
    )
    assert told.strip() == "{'kernel': 1}"
    assert sys.executable != str(fresh.python)
