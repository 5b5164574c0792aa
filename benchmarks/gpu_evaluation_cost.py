"""Measure what one evaluation on a GPU costs, beside KernelBench's own evaluation of the same candidate in the same
run.

    python benchmarks/gpu_evaluation_cost.py --kernelbench PATH [--target sm_90] [--repeat 5] [--theirs 3]
    python benchmarks/gpu_evaluation_cost.py --kernelbench PATH --official LayerNorm L2_12 …

The problem is a softmax over rows, as KernelBench writes problems: `Model`, `get_inputs`. KernelBench judges a
candidate by five correctness and a hundred timed trials in a fresh process (its published protocol, which times the
reference too), we by the whole cascade with every check on: first from a cold command, then one after another in a
worker, whose trusted processes are ready and which starts interpreters ahead; the median from the third on counts. Of
KernelBench's runs, which find the device free of our processes, the median counts. Wall time is that of each tool's own
entry. Builds are never taken from a cache; this machine's A/A band, which is kept for a
week, is measured before. Clients of language models, which KernelBench's evaluation imports and does not use, are
replaced by nothing where they are missing, to its advantage. PATH is a checkout of KernelBench; without it only our
side is timed.

With `--official`, the kernels of `benchmarks/agreement` whose names contain one of the words are evaluated on
KernelBench's own problems at their published sizes, each once by both tools. Ours evaluates them one after another in a
worker, every problem for the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernelbench_agreement import BACKENDS, LANGUAGES, Kernel, problem_file, selected
from benchmarks.kernelbench_evaluator import evaluate_in_process
from runners.harness import evaluate
from runners.harness.devices.device import device_for
from runners.harness.oracle.pool import TrustedPool, pool
from runners.job import Effort, JobSpec, Language, ProblemBundle, Source
from runners.problems import load
from runners.targets import target

OFFICIAL_GOALS = {"triton": 1 / 2, "torch": 1 / 2, "cuda": 1 / 5}
PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(4096, 8192)]

def get_init_inputs():
    return []
"""

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x, out, cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, block)
    value = tl.load(x + row + lanes, mask=lanes < cols, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + lanes, weight / tl.sum(weight, 0), mask=lanes < cols)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]), num_warps=8)
        return out
"""

PYTHON = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        weight = torch.exp(x - x.amax(1, keepdim=True))
        return weight / weight.sum(1, keepdim=True)
"""

CUDA_BODY = (Path(__file__).parents[1] / "runners/problems/shipped/softmax_rows/seeds/rows.cu").read_text()
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

cuda = r"""#include <torch/extension.h>
#define THREADS 256
{body}
torch::Tensor run(torch::Tensor x) {{
  auto out = torch::empty_like(x);
  softmax_rows(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1), 0);
  return out;
}}
"""
module = load_inline("softmax_{nonce}", "torch::Tensor run(torch::Tensor x);", cuda, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
'''


def main() -> int:
    """Time both tools on three candidates; a table and one JSON line. 0: every goal met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, metavar="PATH")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--candidates", nargs="+", default=["triton", "python", "cuda"], help="which of the three")
    parser.add_argument("--repeat", type=int, default=5, help="evaluations of each candidate by us")
    parser.add_argument("--theirs", type=int, default=3, help="the same by KernelBench")
    parser.add_argument("--official", nargs="+", metavar="NAME", help="parts of names of benchmarks/agreement")
    arguments = parser.parse_args()
    if arguments.official and not arguments.kernelbench:
        parser.error("--official needs --kernelbench")
    os.environ["KERNELSCI_STATE"] = tempfile.mkdtemp(prefix="cost-")
    print(f"A/A band first: {_ours_once(arguments.target, _native(), Language.CUDA, CUDA_BODY, -1):.1f} s")
    if arguments.official:
        return _official(arguments.kernelbench, arguments.target, arguments.official)
    pool_of(arguments.target).close()
    ours = _ours(arguments.target, arguments.candidates, arguments.repeat)
    pool_of(arguments.target).close()  # KernelBench finds a device of its own
    checkout = arguments.kernelbench
    theirs = _theirs(checkout, arguments.candidates, arguments.theirs) if checkout else {}
    return _report(ours, theirs)


def _ours(key: str, names: list[str], repeat: int) -> dict[str, list[float]]:
    """Return the wall time of every evaluation, in order; the first of all starts cold."""
    bundle = ProblemBundle("softmax", "kernelbench", "softmax.py", {"softmax.py": PROBLEM})
    native = _native()
    jobs = {
        "triton": (bundle, Language.TRITON, TRITON),
        "python": (bundle, Language.PYTHON, PYTHON),
        "cuda": (native, Language.CUDA, CUDA_BODY),
    }
    return {
        name: [_ours_once(key, *job, number) for number in range(repeat)]
        for name, job in jobs.items()
        if name in names
    }


def pool_of(key: str) -> TrustedPool:
    """Return the trusted processes of a target, which a fresh command does not have."""
    here = target(key)
    return pool(device_for(here.vendor, here.flush_bytes))


def _native() -> ProblemBundle:
    """Return softmax_rows with the same single shape for its benchmark."""
    bundle = load("softmax_rows")
    text = bundle.files["problem.toml"].replace("rows = 8192, cols = 8192", "rows = 4096, cols = 8192")
    for other in ("4096x1024", "128x131072"):
        text = text.replace(f'name = "{other}"\npurpose = "benchmark"', f'name = "{other}"\npurpose = "test"')
    return ProblemBundle(bundle.name, bundle.format, bundle.entry, {**bundle.files, "problem.toml": text})


def _ours_once(key: str, bundle: ProblemBundle, language: Language, text: str, number: int) -> float:
    comment = "//" if language is Language.CUDA else "#"
    source = Source(language, f"{text}\n{comment} {number}\n")
    return _evaluation_s(language.value, JobSpec("cost", bundle, key, source, Effort.FULL))


def _evaluation_s(name: str, spec: JobSpec) -> float:
    """Return the wall time of an evaluation of ours in s, and print it with its stages."""
    started = time.monotonic()
    result = evaluate(spec)
    seconds = time.monotonic() - started
    stages = ", ".join(f"{stage.name} {stage.seconds:.1f}" for stage in result.stages)
    median_x = f" {result.speedup.median:.3f}x" if result.speedup else ""
    print(f"ours {name}: {seconds:.1f} s, {result.status.value}{median_x} {result.reasons} ({stages})", flush=True)
    return seconds


def _theirs(checkout: Path, names: list[str], repeat: int) -> dict[str, list[float]]:
    """Return the wall times of KernelBench's evaluations in s."""
    candidates = {
        "triton": (TRITON, "triton"),
        "python": (PYTHON, "triton"),
        "cuda": (INLINE.format(body=CUDA_BODY, nonce=os.getpid()), "cuda"),
    }
    return {
        name: [_theirs_once(checkout, text, backend) for _ in range(repeat)]
        for name, (text, backend) in candidates.items()
        if name in names
    }


def _theirs_once(checkout: Path, text: str, backend: str) -> float:
    """Return the wall time of KernelBench's evaluation in a process of its own, or nan where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate_in_process(checkout, PROBLEM, text, backend, Path(folder), look=False)
    print(f"theirs {backend}: {run.seconds:.1f} s {run.error[-600:]}", flush=True)
    return float("nan") if run.error else run.seconds


def _official(checkout: Path, key: str, words: list[str]) -> int:
    """Time both tools on KernelBench's own problems, print a table; 0 where every kind meets its goal."""
    kernels = selected(words)
    places = {kernel.key: problem_file(kernel.problem, checkout, None) for kernel in kernels}
    ours = {kernel.key: _official_ours(kernel, places[kernel.key], key) for kernel in kernels}
    pool_of(key).close()  # KernelBench finds a device of its own
    shares: dict[str, list[float]] = {}
    for kernel in kernels:
        texts = places[kernel.key].read_text(), kernel.path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            run = evaluate_in_process(checkout, *texts, BACKENDS[kernel.kind], Path(folder), look=False)
        mine = ours[kernel.key]
        if not run.error:
            shares.setdefault(kernel.kind, []).append(mine / run.seconds)
        outcome = run.error[-200:] or f"share {mine / run.seconds:.2f}"
        print(f"{kernel.key:<48} ours {mine:6.1f} s, KernelBench {run.seconds:6.1f} s; {outcome}", flush=True)
    for kind, found in shares.items():
        print(f"{kind:<8} {len(found)} kernels: median share {median(found):.2f}, goal {OFFICIAL_GOALS[kind]:.2f}")
    return int(any(median(found) > OFFICIAL_GOALS[kind] for kind, found in shares.items()) or not shares)


def _official_ours(kernel: Kernel, place: Path, key: str) -> float:
    source = Source(LANGUAGES[kernel.kind], kernel.path.read_text())
    return _evaluation_s(kernel.key, JobSpec("cost", load(place), key, source, Effort.FULL))


def _report(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> int:
    goals, met = {"triton": 1 / 2, "python": 1 / 2, "cuda": 1 / 5}, True
    for name, times in ours.items():
        cold, warm = times[0], median(times[2:] or times)
        line = f"{name:<8} ours {cold:6.1f} s first, {warm:6.1f} s in a series"
        if name in theirs:
            other = median(theirs[name])
            share = warm / other
            met &= share <= goals[name]
            line += f"; KernelBench {other:6.1f} s; share {share:.2f}, goal {goals[name]:.2f}"
        print(line)
    print(json.dumps({"ours_s": ours, "kernelbench_s": theirs}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
