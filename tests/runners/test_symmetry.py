"""Test that both sides of a comparison run under the same conditions; only their source differs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from runners.backends import Artefact, BuildRequest, backend_for
from runners.errors import BASELINE, CANDIDATE, PARENT
from runners.harness.devices.device import Device
from runners.harness.memory import staging
from runners.harness.oracle.pool import pool
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.sessions import Bench
from runners.job import Baseline, Language, Limits, ProblemBundle, Source
from runners.problems import load, open_bundle
from runners.problems.base import Problem, Purpose

pytestmark = pytest.mark.processes

CONDITIONS = """
import hashlib, os, resource, sys
import torch
from torch.overrides import _len_torch_function_stack

LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)


def digest(value):
    return int(hashlib.sha256(repr(value).encode()).hexdigest()[:5], 16)


def custom_kernel(x):
    found = [
        torch.is_grad_enabled(), torch.get_num_threads(), torch.get_num_interop_threads(),
        digest(torch.get_default_dtype()), digest(torch.get_default_device()), _len_torch_function_stack(),
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32,
        digest(torch.get_float32_matmul_precision()), torch.are_deterministic_algorithms_enabled(),
        os.getpriority(os.PRIO_PROCESS, 0), digest(sorted(os.sched_getaffinity(0))), digest(sorted(os.environ.items())),
        digest([resource.getrlimit(which) for which in LIMITS]), digest(sys.flags), digest(os.getcwd()),
        digest(open("/proc/self/status").read().split("Seccomp:")[1].split()[0]),
    ]
    out = torch.zeros_like(x)
    out.view(-1)[: len(found)] = torch.tensor([float(value) for value in found])
    return out
"""


def bundle() -> ProblemBundle:
    return load("softmax_rows")


def built(problem: Problem, source: Source, folder: Path, name: str) -> Artefact:
    inner = folder / name
    inner.mkdir(mode=0o755)
    return backend_for(source.language).build(BuildRequest(source, problem.symbol, "cpu", inner, Limits()))


def bench_of(wanted: ProblemBundle, folder: Path) -> Bench:
    problem = open_bundle(wanted)
    oracle = pool(Device("cpu")).borrow(wanted)
    case = problem.cases("cpu", Purpose.BENCHMARK)[0]
    setups = oracle.set_up([case], folder / "setups")
    return Bench(problem, wanted, oracle, [case], setups, Limits(), random.Random(3), None)


def first_output(bench: Bench, side: Any) -> bytes:
    (case,) = bench.cases
    content = bench.oracle.make(case, case.distributions[0])[0]
    side.prioritise()
    side.set_case(staging.case_layout(bench.problem, content), case)
    (call,) = staging.stage(side.arena, [content], bench.rng)
    side.run([call.message], 60.0)
    return bytes(side.arena.memory.read(call.outputs[0], 4 * 20))


def test_candidate_parent_and_baseline_run_under_the_same_conditions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    bench = bench_of(bundle(), tmp_path)
    # Every sandbox has a user of its own, so that user ids are left out.
    artefact = built(bench.problem, Source(Language.PYTHON, CONDITIONS), tmp_path, "probe")
    size = 8 << 20
    found = {}
    for name in (CANDIDATE, BASELINE, PARENT):
        side = bench.candidate(name, artefact, size)
        found[name] = first_output(bench, side)
        assert type(side).__name__ == "CandidateProcess" and side.level
        side.close()
    bench.oracle.close()
    assert any(found[CANDIDATE])
    assert found[CANDIDATE] == found[BASELINE] == found[PARENT]


KERNELBENCH = """
import torch
import torch.nn as nn

width = 4096


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(4, width)]


def get_init_inputs():
    return [width]
"""


def test_baseline_is_the_reference_under_a_candidates_name() -> None:
    problem = open_bundle(ProblemBundle("norm", "kernelbench", "norm.py", {"norm.py": KERNELBENCH}))
    source = baseline_source(problem, Baseline.EAGER, "sm_90")
    assert source.language is Language.PYTHON
    assert source.text == KERNELBENCH.replace("Model(nn", "ModelNew(nn")


def test_baseline_on_a_cpu_has_the_constants_of_the_reduced_case() -> None:
    problem = open_bundle(ProblemBundle("norm", "kernelbench", "norm.py", {"norm.py": KERNELBENCH}))
    (case,) = problem.cases("cpu", Purpose.BENCHMARK)
    assert f"width = {case.sizes['width']}" in baseline_source(problem, Baseline.EAGER, "cpu").text
    assert case.sizes["width"] != 4096


# Quick timing in test_check has the first one as its baseline; the noise floor is measured with the second.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("softmax_rows", marks=pytest.mark.long),
        pytest.param("layernorm_residual", marks=pytest.mark.long),
        "matmul_bias_gelu",
    ],
)
def test_reference_of_a_shipped_problem_takes_a_candidates_arguments(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    bench = bench_of(load(name), tmp_path)
    source = baseline_source(bench.problem, Baseline.EAGER, "cpu")
    side = bench.candidate(BASELINE, built(bench.problem, source, tmp_path, "baseline"), 64 << 20)
    assert any(first_output(bench, side))
    side.close()
    bench.oracle.close()
