"""Test exported kernels of every language: Triton in its interpreter, HIP and CUDA by build and emulation.

There is no GPU here. What is exported is the same text that a GPU's machine builds, so it is built for the device where
a compiler of it is, computed in emulation, and the command lines of absent compilers are looked at.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from runners.commands.reading import read_problem, read_source
from runners.export.formats import FORMATS, write
from runners.export.package import exported
from runners.export.runtime import building
from runners.harness import evaluate
from runners.job import Effort, Flag, JobSpec, Language, Source, Status
from runners.problems import SHIPPED, load, open_bundle
from runners.targets import target
from runners.verbs.building import build

pytestmark = [pytest.mark.processes]
TARGETS = {Language.HIP: "gfx942", Language.CUDA: "sm_90", Language.TRITON: "sm_90"}
SUFFIXES = {".hip": Language.HIP, ".cu": Language.CUDA}
CALL = """
import json, sys, warnings
import torch
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import softmax_rows
(case, *_) = json.loads(open(sys.argv[1] + "/softmax_rows/declaration.json").read())["cases"]
x = torch.randn(case["values"][0]["shape"])
torch.testing.assert_close(softmax_rows.softmax_rows(x), torch.softmax(x, -1), rtol=1e-4, atol=1e-5)
odd = torch.randn(3, 5)
torch.testing.assert_close(softmax_rows.softmax_rows(odd), torch.softmax(odd, -1))
print(json.dumps(softmax_rows.counts()))
"""


def seeds(*suffixes: str, shown: tuple[str, ...] = ()) -> list[Any]:
    """Return the shipped seeds with these suffixes. Where some are `shown`, the others are left to the long form."""
    paths = [path for suffix in suffixes for path in sorted(SHIPPED.glob(f"*/seeds/*{suffix}"))]
    names = {path: f"{path.parents[1].name}-{path.name}" for path in paths}
    assert set(shown) <= set(names.values())
    return [
        pytest.param(path, id=name, marks=[] if name in shown or not shown else pytest.mark.long)
        for path, name in names.items()
    ]


def packaged(path: Path, key: str, folder: Path) -> Path:
    """Export a seed as a package and return the folder of its module."""
    kernel = exported(read_problem(path.parents[1].name), read_source(path), key)
    write(FORMATS["package"].files(kernel), folder)
    return folder / "src" / path.parents[1].name


def imported(folder: Path) -> ModuleType:
    """Return the exported module, imported under a name of its own."""
    name = f"exported_{folder.name}_{id(folder)}"
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_triton_package_computes_in_the_interpreter_and_leaves_the_rest_to_torch(tmp_path: Path) -> None:
    packaged(SHIPPED / "softmax_rows/seeds/triton_rows.py", "cpu", tmp_path / "made")
    env = {**os.environ, "TRITON_INTERPRET": "1", "KERNEL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(tmp_path / "made/src")],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout)
    assert counts["kernel"] == 1
    assert any("shapes that were not measured" in reason for reason in counts)


@pytest.mark.parametrize("path", seeds("triton_*.py", shown=("softmax_rows-triton_rows.py",)))
def test_every_triton_seed_exports_to_text_that_still_builds(path: Path, tmp_path: Path) -> None:
    key = "gfx942" if "mfma" in path.stem else "sm_90"
    folder = packaged(path, key, tmp_path)
    text = (folder / "_kernel.py").read_text()
    assert "# tunable" not in text or "tunable(" not in text
    report = build(Source(Language.TRITON, text), target(key), open_bundle(load(path.parents[1].name)))
    assert report.ok, report.log


# The test below builds one of them for its device before it emulates it.
@pytest.mark.hip
@pytest.mark.long
@pytest.mark.parametrize("path", seeds(".hip"))
def test_every_hip_seed_exports_to_text_that_builds_for_its_device(path: Path, tmp_path: Path) -> None:
    folder = packaged(path, "gfx942", tmp_path)
    source = Source(Language.HIP, (folder / "_kernel.hip").read_text())
    report = build(source, target("gfx942"), open_bundle(load(path.parents[1].name)))
    assert report.ok and report.kernels, report.log


@pytest.mark.hip
@pytest.mark.skipif(shutil.which("clang++-19") is None, reason="needs clang-19")
@pytest.mark.parametrize(
    "name", ["softmax_rows-rows.hip", pytest.param("layernorm_residual-rows.hip", marks=pytest.mark.long)]
)
def test_exported_hip_text_computes_the_same_in_emulation(name: str, tmp_path: Path) -> None:
    problem, _, file = name.partition("-")
    folder = packaged(SHIPPED / problem / "seeds" / file, "gfx942", tmp_path)
    source = Source(Language.HIP, (folder / "_kernel.hip").read_text())
    result = evaluate(JobSpec("exported", read_problem(problem), "gfx942", source, effort=Effort.BUILD))
    assert result.status is Status.CORRECT, result.reasons
    assert result.build is not None and result.build.ok and result.build.kernels
    assert Flag.EMULATED in result.flags and all(case.ok for case in result.cases)


@pytest.mark.parametrize("path", seeds(".cu", ".hip"))
def test_exported_device_code_sets_every_tunable_and_names_its_function(path: Path, tmp_path: Path) -> None:
    language = SUFFIXES[path.suffix]
    folder = packaged(path, TARGETS[language], tmp_path)
    text = (folder / f"_kernel{path.suffix}").read_text()
    declared = json.loads((folder / "declaration.json").read_text())
    assert text.endswith(path.read_text())
    assert f"{declared['symbol']}(" in text and declared["device"] == "cuda"
    for name in open_names(path.read_text()):
        assert f"#ifndef {name}\n#define {name} " in text, name


def open_names(text: str) -> list[str]:
    from runners.tunables import parse

    return [parameter.name for parameter in parse(text).parameters]


@pytest.mark.parametrize(
    ("path", "compiler", "variable", "device", "expected"),
    [
        ("softmax_rows/seeds/rows.cu", "nvcc", "KERNEL_NVCC", (9, 0), ["-arch=sm_90a", "-Xcompiler", "-std=c++17"]),
        ("softmax_rows/seeds/rows.cu", "nvcc", "KERNEL_NVCC", (8, 0), ["-arch=sm_80", "-shared", "-O3"]),
        (
            "softmax_rows/seeds/rows.hip",
            "hipcc",
            "KERNEL_HIPCC",
            "gfx942",
            ["--offload-arch=gfx942", "-fPIC", "-O3"],
        ),
    ],
)
def test_compiler_of_a_gpu_is_asked_for_this_machines_device(
    path: str, compiler: str, variable: str, device: Any, expected: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tool, told = tmp_path / compiler, tmp_path / "told"
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo 1.2 && exit\necho "$@" > {told}\necho no such GPU >&2\nexit 1\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv(variable, str(tool))
    monkeypatch.setenv("KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: device)
    product = type("Product", (), {"gcnArchName": f"{device}:sramecc+:xnack-"})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: product)
    folder = packaged(SHIPPED / path, "gfx942" if compiler == "hipcc" else "sm_90", tmp_path / "made")
    declared = json.loads((folder / "declaration.json").read_text())
    source = (folder / declared["source"]).read_text()
    with pytest.raises(building.BuildError, match="no such GPU"):
        building.build(source, declared)
    words = told.read_text().split()
    assert set(expected) <= set(words), words
    assert words[-3].endswith(declared["source"]) and words[-2] == "-o"


@pytest.mark.parametrize(
    ("path", "key", "told"),
    [
        ("softmax_rows/seeds/rows.cu", "sm_90", "the kernel is for cuda"),
        ("softmax_rows/seeds/rows.hip", "gfx942", "the kernel is for cuda"),
        ("softmax_rows/seeds/triton_rows.py", "sm_90", "the kernel is for cuda"),
    ],
)
def test_package_of_a_gpu_kernel_computes_with_torch_on_a_machine_without_one(
    path: str, key: str, told: str, tmp_path: Path
) -> None:
    module = imported(packaged(SHIPPED / path, key, tmp_path))
    x = torch.randn(8, 512)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.testing.assert_close(module.softmax_rows(x), torch.softmax(x, -1))
    assert any(told in str(one.message) for one in said), [str(one.message) for one in said]
    assert "kernel" not in module.counts()


@pytest.mark.parametrize(("language", "told"), [("cuda", "NVIDIA's compiler"), ("hip", "ROCm's compiler")])
def test_machine_without_the_compiler_is_told_which_one(
    language: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PATH", "CUDA_HOME", "ROCM_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(building.BuildError, match=told):
        building.compiler_of(language)
