"""Compare the same C++ source as a native problem, as a KernelBench problem in C++, and behind a KernelBench
`ModelNew`.

    python benchmarks/same_source.py --rounds 5

The three only differ in how the harness calls the function (an RMSNorm with a SwiGLU gate on 512 × 2048), so that their
times must agree. They are evaluated one after the other, in so many rounds. Compared is the tenth percentile of all
samples of a way, since other load on the machine only ever adds time: a cost of the harness is in every sample. Prints
the ratios to the native problem and exits with 1 where one is beyond 5 %.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.backends import BuildRequest, backend_for
from runners.harness import evaluate
from runners.harness.timing.statistics import quantile
from runners.job import Effort, JobSpec, Language, Limits, ProblemBundle, Source, Status
from runners.problems import load
from runners.problems.filters import with_signature
from runners.problems.signature import SYMBOL

MOST_DEVIATION = 0.05
ROWS, FEATURES = 512, 2048
SOURCE = Source(
    Language.CPP,
    """// @flags -O3 -march=native -ffast-math
#include <algorithm>
#include <cmath>
#include <cstdint>
extern "C" void kernel(const float* x, const float* gate, const float* weight, int64_t features, double eps,
                       float* out) {
    for (int64_t r = 0; r < 512; ++r) {
        const float *a = x + r * features, *g = gate + r * features;
        float* o = out + r * features;
        float sum = 0.0f;
        for (int64_t c = 0; c < features; ++c) sum += a[c] * a[c];
        const float scale = 1.0f / std::sqrt(sum / features + (float)eps);
        for (int64_t c = 0; c < features; ++c) {
            const float gated = g[c] / (1.0f + std::exp(-std::max(g[c], -80.0f)));
            o[c] = a[c] * scale * weight[c] * gated;
        }
    }
}
""",
)
REFERENCE = """
def fused(x, gate, weight, eps):
    norm = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
    return norm * torch.nn.functional.silu(gate)
"""
MODEL = f"""
import torch

{REFERENCE}

class Model(torch.nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x, gate):
        return fused(x, gate, self.weight, self.eps)


rows, features = {ROWS}, {FEATURES}
# @cpu rows={ROWS} features={FEATURES}


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, features)]


def get_init_inputs():
    return [features, 1e-6]
"""
NATIVE = """
format = 1
name = "fused"
title = "RMSNorm and SwiGLU"
symbol = "kernel"
languages = ["cpp"]

[provenance]
author = "Kernel Scientist"

[[seeds]]
name = "fused"
title = "The function"
language = "cpp"
file = "fused.cpp"

[tolerances.float32]
rtol = 1e-4
atol = 1e-4
"""
MODULE = """
import base64, ctypes, tempfile
import torch

with tempfile.NamedTemporaryFile(suffix=".so") as file:
    file.write(base64.b64decode(LIBRARY))
    file.flush()
    function = ctypes.CDLL(file.name).kernel
function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.c_double, ctypes.c_void_p]
function.restype = None


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(features))
        self.features, self.eps = features, eps
        self.weight_pointer = None

    def forward(self, x, gate):
        out = torch.empty_like(x)
        weight = self.weight_pointer = self.weight_pointer or self.weight.data_ptr()
        function(x.data_ptr(), gate.data_ptr(), weight, self.features, self.eps, out.data_ptr())
        return out
"""


def main() -> int:
    """Measure and print; 1 where two ways of calling the same function differ by more than 5 %."""
    parser = argparse.ArgumentParser(description="Time one C++ function behind three ways of calling it.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short timing in each round")
    arguments = parser.parse_args()
    effort = Effort.QUICK if arguments.quick else Effort.FULL
    with tempfile.TemporaryDirectory() as folder:
        ways = _ways(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(arguments.rounds):
            for name, spec in ways.items():
                times[name] += _samples_us(spec(effort))
            print(f"round {number + 1}: {', '.join(f'{n} {_low(t):.1f} µs' for n, t in times.items())}", flush=True)
    return _report(times)


def _ways(folder: Path) -> dict[str, Callable[[Effort], JobSpec]]:
    """Return a job for each way, native first."""
    folder.chmod(0o755)
    (folder / "fused_kernelbench.py").write_text(MODEL)
    kernelbench = with_signature(load(folder / "fused_kernelbench.py"))
    return {
        "native C++": lambda effort: _job(_native(folder), SOURCE, effort),
        "KernelBench C++": lambda effort: _job(kernelbench, SOURCE, effort),
        "KernelBench ModelNew": lambda effort: _job(kernelbench, _module(folder), effort),
    }


def _native(folder: Path) -> ProblemBundle:
    home = folder / "native"
    home.mkdir(exist_ok=True)
    (home / "problem.toml").write_text(NATIVE + _arguments() + _cases())
    (home / "fused.cpp").write_text(SOURCE.text)
    (home / "description.md").write_text("RMSNorm, then SwiGLU.\n")
    (home / "reference.py").write_text(
        f"import torch\n\n{REFERENCE}\n\ndef reference(x, gate, weight, eps):\n    return fused(x, gate, weight, eps)\n"
    )
    return load(home)


def _arguments() -> str:
    tensors = {"x": '["512", "features"]', "gate": '["512", "features"]', "weight": '["features"]'}
    described = [
        f'[[arguments]]\nname = "{name}"\nrole = "input"\ndtype = "float32"\nshape = {shape}\n'
        for name, shape in tensors.items()
    ]
    described[2] += 'distribution = "positive"\n'
    described += [
        '[[arguments]]\nname = "features"\nrole = "size"\n',
        '[[arguments]]\nname = "eps"\nrole = "scalar"\ndtype = "float64"\n',
        f'[[arguments]]\nname = "out"\nrole = "output"\ndtype = "float32"\nshape = {tensors["x"]}\n',
    ]
    return "\n".join(described)


def _cases() -> str:
    return "".join(
        f'[[cases]]\nname = "{purpose}"\npurpose = "{purpose}"\nsizes = {{ features = {FEATURES}, eps = 1e-6 }}\n'
        for purpose in ("test", "benchmark")
    )


def _module(folder: Path) -> Source:
    """Return a `ModelNew` around the library that the harness itself builds from the source."""
    artefact = backend_for(Language.CPP).build(BuildRequest(SOURCE, SYMBOL, "cpu", folder, Limits()))
    if artefact.path is None:
        raise SystemExit(artefact.report.log)
    library = base64.b64encode(artefact.path.read_bytes()).decode()
    return Source(Language.PYTHON, f"LIBRARY = {library!r}\n{MODULE}")


def _job(problem: ProblemBundle, source: Source, effort: Effort) -> JobSpec:
    return JobSpec(uuid.uuid4().hex, problem, "cpu", source, effort=effort)


def _samples_us(spec: JobSpec) -> list[float]:
    result = evaluate(spec)
    samples = [time for case in result.cases for time in case.samples.get("candidate", [])]
    if result.status is not Status.CORRECT or not samples:
        raise SystemExit(f"{spec.problem.name}: {result.status.value}: {'; '.join(result.reasons)}")
    return samples


def _low(samples: list[float]) -> float:
    return quantile(sorted(samples), 0.1)


def _report(times: dict[str, list[float]]) -> int:
    ratios = {name: _low(samples) / _low(times["native C++"]) for name, samples in times.items()}
    print(f"load average {os.getloadavg()[0]:.1f}")
    for name, samples in times.items():
        spread = f"median {median(samples):.1f}, {len(samples)} samples"
        print(f"{name:22} {_low(samples):8.1f} µs ({spread}), {ratios[name]:.3f}")
    return int(any(abs(ratio - 1) > MOST_DEVIATION for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
