"""Test what is compiled, without the device, of Triton kernels for problems in other people's formats."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from triton.runtime import autotuner, cache
from triton.runtime.errors import OutOfResources

from runners.backends import BuildRequest, backend_for
from runners.backends.triton import with_diagnostics
from runners.backends.triton_record import MOST_CONFIGS, NotHereError, Recorder, skip_hash_of_installation
from runners.harness.building.sample_arguments import samples_of
from runners.job import BuildReport, Language, Limits, ProblemBundle, Source
from runners.problems import load, open_bundle
from runners.problems.base import Problem, Purpose
from runners.targets import target
from runners.verbs.building import build

pytestmark = [pytest.mark.processes, pytest.mark.split, pytest.mark.unchanged()]

# Weights, a setting, and inputs of which one is made from the content of another.
REFERENCE = """
import torch
import torch.nn as nn

ROWS, WIDTH = 512, 256


class Model(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(width))
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, x, lengths):
        return x * self.weight * self.scale + self.shift


def get_inputs():
    lengths = torch.randint(1, ROWS, (4,))
    return [torch.rand(ROWS, WIDTH), torch.arange(int(lengths.max()) * 0 + 4)]


def get_init_inputs():
    return [WIDTH, 0.5]
"""

CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x, weight, out, scale, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    {body}


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(width, device="cpu"))
        self.register_buffer("shift", torch.zeros(width).cuda())
        self.layers = nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.LSTM(8, 4)).half().cuda()

    @torch.compile(mode="max-autotune")
    def forward(self, x, lengths):
        {before}
        assert self.layers(x.half())[0].device == x.device and self.layers[1].num_batches_tracked.is_cuda
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        steps = torch.tensor([0, 4], device="cuda").to(x.dtype)
        out[:, :2].copy_(steps)
        out[0] = steps.sum() + x.t().contiguous()[0, 0]
        halves = out[: x.shape[0] // 2], out[x.shape[0] // 2 :, None][:, 0]
        with torch.cuda.device(x.device):
            for half in halves:
                scaled[(half.shape[0],)](x, self.weight, half, self.scale, x.shape[1])
        return out + self.shift.to("cuda")
"""
BODY = "tl.store(out + row * WIDTH + at, tl.load(x + row * WIDTH + at) * tl.load(weight + at) * scale)"


def problem() -> Problem:
    return open_bundle(ProblemBundle("scaled", "kernelbench", "scaled.py", {"scaled.py": REFERENCE}))


def candidate(body: str, before: str = "pass") -> str:
    return CANDIDATE.replace("{body}", body).replace("{before}", before)


def report_of(body: str = BODY, before: str = "pass", key: str = "sm_90") -> BuildReport:
    return build(Source(Language.TRITON, candidate(body, before)), target(key), problem())


# A kernel that is launched as it was compiled, and once more by its driver's function.
AGAIN = (
    "kernel = scaled[(4,)](x, self.weight, torch.empty_like(x), self.scale, x.shape[1])\n"
    "        kernel[(4, 1, 1)](x, self.weight, torch.empty_like(x), self.scale, x.shape[1])\n"
    "        kernel.run(4, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x)"
)


@pytest.mark.parametrize(
    ("before", "key"),
    [
        (AGAIN, "sm_90"),
        pytest.param("pass", "sm_90", marks=pytest.mark.long),
        # A submission to GPU Mode is built for gfx942 below.
        pytest.param("pass", "gfx942", marks=pytest.mark.long),
    ],
    ids=["compiled again", "compiled once", "for MI300"],
)
def test_kernels_of_a_model_are_compiled_with_the_shapes_of_the_problem_and_recorded_once(
    before: str, key: str
) -> None:
    report = report_of(before=before, key=key)
    assert report.ok and not report.log, report.log
    (kernel,) = report.kernels
    assert kernel.name == "scaled" and kernel.features["programs"] == 256
    assert kernel.registers or kernel.vgpr


def test_what_the_compiler_refuses_is_a_failed_build() -> None:
    report = report_of(body="tl.store(out + at, tl.dot(tl.load(x + at), 1))")
    assert not report.ok and "tl.dot" in report.log
    # The candidate's own line comes first, and none of torch's, Triton's or ours.
    assert report.log.startswith('  File "kernel.py", line 34, in forward'), report.log
    assert "site-packages" not in report.log and "triton_record" not in report.log


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("lengths.tolist()", "DataDependentOutputException"),
        ("raise RuntimeError('no stream')", "RuntimeError: no stream (line 25)"),
        # One more exception of the host code.
        pytest.param(
            "import a_library_of_the_device",
            "ModuleNotFoundError: No module named 'a_library_of_the_device'",
            marks=pytest.mark.long,
        ),
    ],
)
def test_host_code_that_needs_the_device_ends_the_build_early_and_is_no_failure(before: str, said: str) -> None:
    report = report_of(before=before)
    assert report.ok and not report.kernels
    assert "ended early" in report.log and said in report.log


def test_what_a_failed_pass_printed_of_the_candidates_lines_is_part_of_the_error() -> None:
    error = "RuntimeError: PassManager::run failed\n"
    pass_said = "'ttng.async_tma_copy_global_to_local' op must have the same number of elements"
    log = (
        f"/tmp/build-x/kernel.py:150:0: error: {pass_said}\nmodule {{\n  %cst = arith.constant\n"
        f"/tmp/build-x/kernel.py:150:0: error: {pass_said}\n"
        "/tmp/build-x/kernel.py:150:0: error: Failures have been detected while processing an MLIR pass pipeline\n"
        "/tmp/build-x/kernel.py:150:0: note: Pipeline failed\n"
    )
    assert with_diagnostics(error, log) == f"{error}kernel.py:150:0: error: {pass_said}"
    assert with_diagnostics("", log) == "" and with_diagnostics("ValueError: no", "all well") == "ValueError: no"
    assert (
        len(with_diagnostics(error, "".join(f"/b/kernel.py:{n}:0: error: {'x' * 9000}\n" for n in range(9)))) < 4000
    )


# Each stage keeps 64 KiB of operands in shared memory, of which an H100 has 227 KiB for a program.
STAGED = """rows, inner = tl.arange(0, 64), tl.arange(0, 128)
    total = tl.zeros((64, 64), tl.float32)
    for start in tl.range(0, WIDTH * 16, 128, num_stages=STAGES):
        a = tl.load(x + rows[:, None] * WIDTH + inner[None, :] + start).to(tl.float16)
        b = tl.load(x + inner[:, None] + rows[None, :] * WIDTH + start).to(tl.float16)
        total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * 64 + rows[None, :], total)"""
TUNED = "@triton.autotune([triton.Config({'STAGES': stages}) for stages in ({stages})], key=[])\n@triton.jit"


def staged(stages: str) -> str:
    """Return a candidate whose configurations have so many stages, and one without a tuner for a single number."""
    text = candidate(STAGED)
    if "," not in stages:
        return text.replace("STAGES", stages)
    text = text.replace("WIDTH: tl.constexpr", "WIDTH: tl.constexpr, STAGES: tl.constexpr")
    return text.replace("@triton.jit", TUNED.replace("{stages}", stages))


def test_a_kernel_that_needs_more_shared_memory_than_the_device_has_is_refused() -> None:
    found = build(Source(Language.TRITON, staged("10")), target("sm_90"), problem())
    assert not found.ok and "out of resource: shared memory, Required: " in found.log
    assert "Hardware limit: 232448" in found.log and 'File "kernel.py"' in found.log


@pytest.mark.parametrize(
    ("stages", "too_large"), [("10, 2", [False, True]), pytest.param("10, 11", [True], marks=pytest.mark.long)]
)
def test_a_tuner_passes_over_configurations_that_need_too_much_shared_memory(
    stages: str, too_large: list[bool]
) -> None:
    found = build(Source(Language.TRITON, staged(stages)), target("sm_90"), problem())
    assert found.ok == (False in too_large), found.log
    assert sorted({(kernel.lds_bytes or 0) > 232448 for kernel in found.kernels}) == too_large


def test_a_candidate_may_compile_a_kernel_to_ask_how_much_shared_memory_it_needs() -> None:
    asked = (
        "compiled = scaled.warmup(x, self.weight, x, self.scale, x.shape[1], grid=(1,))\n"
        "        assert compiled.metadata.shared > 232448"
    )
    text = staged("10").replace("pass\n", f"{asked}\n").replace("scaled[(half.shape[0],)](", "len([")
    text = text.replace("self.scale, x.shape[1])\n        return", "self.scale, x.shape[1]])\n        return")
    found = build(Source(Language.TRITON, text), target("sm_90"), problem())
    assert found.ok and [(kernel.lds_bytes or 0) > 232448 for kernel in found.kernels] == [True], found.log


@pytest.mark.parametrize(
    ("configurations", "fitting", "prunes", "ends"),
    [
        (2, {1}, False, None),
        (2, {1}, True, None),
        (2, set(), False, OutOfResources),
        (2, set(), True, NotHereError),
        (5, {3, 4}, False, None),
        (5, {4}, False, NotHereError),
    ],
)
def test_a_tuner_is_refused_only_if_none_of_its_configurations_can_fit(
    configurations: int, fitting: set[int], prunes: bool, ends: type[Exception] | None
) -> None:
    """Tune by a recorder whose compiler is made up: the tests beside this one have a real one."""

    def run(number: int) -> int:
        if number not in fitting:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return number

    configs = [
        SimpleNamespace(all_kwargs=lambda number=number: {"number": number}) for number in range(configurations)
    ]
    tuner: Any = SimpleNamespace(
        configs=configs, arg_names=[], fn=SimpleNamespace(run=run), early_config_prune=print if prunes else None
    )
    recorder = Recorder(most_shared=232_448)
    if ends is None:
        assert recorder.tune(tuner) == max(one for one in fitting if one < MOST_CONFIGS)
        return
    with pytest.raises(ends, match=r"shared memory|are compiled on the device"):
        recorder.tune(tuner)


@pytest.mark.parametrize("more", [pytest.param("10, 11, 12, 13, 2", marks=pytest.mark.long), "10, 11"])
def test_configurations_that_only_the_device_chooses_from_are_left_to_it(more: str) -> None:
    text = staged(more)
    if more == "10, 11":
        text = text.replace(
            "key=[])", "key=[], prune_configs_by={'early_config_prune': lambda configs, *_, **__: configs})"
        )
    found = build(Source(Language.TRITON, text), target("sm_90"), problem())
    assert found.ok and "the tuner's other configurations are compiled on the device" in found.log


def test_inputs_that_need_packages_of_the_device_are_no_failure_of_the_candidate() -> None:
    text = REFERENCE.replace("import torch\n", "import torch\nimport a_library_of_the_device\n", 1)
    made = open_bundle(ProblemBundle("scaled", "kernelbench", "scaled.py", {"scaled.py": text}))
    report = build(Source(Language.TRITON, candidate(BODY)), target("sm_90"), made)
    assert report.ok and "a_library_of_the_device" in report.log


def test_two_kernels_whose_host_code_differs_are_not_the_same_artefact() -> None:
    # The tests above build the same texts, which are compiled once.
    texts = (AGAIN, "lengths.tolist()", "raise RuntimeError('no stream')")
    hashes = {report_of(before=before).artefact_hash for before in texts}
    assert len(hashes) == 3 and None not in hashes


def test_each_shape_of_a_problem_is_a_call_of_its_own() -> None:
    made: Any = problem()
    (text,) = samples_of(made, "sm_90")
    assert isinstance(text, str) and "ROWS, WIDTH" in text.replace("(", "").replace(")", "")
    assert len(made.cases("sm_90", Purpose.BENCHMARK)) == 1


TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
lang: py
description: Add a constant.
config: {main: eval.py}
tests: [{size: 64, plus: 1.5, seed: 7}]
benchmarks: [{size: 4096, plus: 0.5, seed: 9}, {size: 65536, plus: 0.5, seed: 10}]
ranking_by: geom
"""
TASK_REFERENCE = """
import torch
from task import Data


def generate_input(size: int, plus: float, seed: int) -> Data:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    offset = torch.rand(1, device="cuda", generator=generator).item()
    return torch.randn(size, device="cuda", generator=generator) + offset, {"plus": plus}


def ref_kernel(data):
    x, options = data
    return x + options["plus"]
"""
SUBMISSION = """
import torch, triton, triton.language as tl
from task import Data


@triton.jit
def added(x, out, plus, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at) + plus)


def custom_kernel(data: Data):
    x, options = data
    out = torch.empty_like(x)
    added[(x.numel() // 1024,)](x, out, options["plus"], 1024)
    return out
"""


def test_a_submission_to_gpu_mode_is_compiled_with_the_inputs_that_its_task_makes(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(TASK)
    (tmp_path / "task.py").write_text("Data = tuple\n")
    (tmp_path / "reference.py").write_text(TASK_REFERENCE)
    report = build(Source(Language.TRITON, SUBMISSION), target("gfx942"), open_bundle(load(tmp_path)))
    assert report.ok and not report.log, report.log
    (kernel,) = report.kernels
    assert kernel.vgpr and kernel.features["programs"] == 64


@pytest.mark.long
def test_a_submission_to_gpu_mode_that_the_compiler_refuses_is_a_failed_build(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(TASK)
    (tmp_path / "task.py").write_text("Data = tuple\n")
    (tmp_path / "reference.py").write_text(TASK_REFERENCE)
    broken = SUBMISSION.replace("tl.arange(0, SIZE)", "tl.arange(0, SIZE - 1)")
    report = build(Source(Language.TRITON, broken), target("gfx942"), open_bundle(load(tmp_path)))
    assert not report.ok and "power of 2" in report.log


def test_a_task_whose_helper_is_not_python_is_built_as_far_as_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(TASK)
    (tmp_path / "task.py").write_text("Data = (\n")
    (tmp_path / "reference.py").write_text(TASK_REFERENCE)
    made = open_bundle(load(tmp_path))
    assert samples_of(made, "gfx942") == ()
    assert build(Source(Language.TRITON, SUBMISSION), target("gfx942"), made).ok


# A candidate that ends as early is built in test_static_builds.py too.
@pytest.mark.parametrize("ends", ["problem", pytest.param("candidate", marks=pytest.mark.long)])
def test_a_process_that_ends_while_it_makes_the_inputs_is_not_the_candidates_fault(
    ends: str, tmp_path: Path
) -> None:
    # As it does where it is stopped at the limit of the build.
    end = "\nimport os\nos._exit(0)\n"
    maker = REFERENCE + (end if ends == "problem" else "")
    candidate = CANDIDATE.replace("{body}", BODY).replace("{before}", "pass")
    source = Source(Language.TRITON, candidate + (end if ends == "candidate" else ""))
    request = BuildRequest(source, "", "sm_90", tmp_path, Limits(), (maker,))
    report = backend_for(Language.TRITON).build(request).report
    assert report.ok == (ends == "problem"), report.log
    assert ("inputs were not made in time" in report.log) == report.ok


def test_a_build_whose_cache_nobody_else_reads_does_not_hash_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (cache, autotuner):
        monkeypatch.setattr(module, "triton_key", module.triton_key)  # put back after the test
    monkeypatch.setattr(cache.hashlib, "sha256", lambda *_: pytest.fail("the installation was hashed"))
    skip_hash_of_installation()
    assert cache.triton_key() == autotuner.triton_key() == ""
