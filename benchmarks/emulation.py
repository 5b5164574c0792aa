"""Measure the emulation of HIP device code: which faults it finds, and how long it takes.

    python -m benchmarks.emulation [--seeds] [--mutants] > docs/evidence/emulation-table.md

Every shipped HIP seed must be right, and every mutant of one must be caught. A mutant is a seed with one fault in its
text, of the kinds that hand-written GPU code has. No GPU is needed; clang is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runners.commands.reading import read_problem, read_source
from runners.harness import evaluate
from runners.job import Effort, Flag, JobResult, JobSpec, Language, Source, Status

SHIPPED = Path(__file__).parents[1] / "runners" / "problems" / "shipped"
TARGET = "gfx942"
CAUGHT = (Status.INCORRECT, Status.CRASHED, Status.TIMEOUT)
FP8, LAYERNORM, PRODUCT, SOFTMAX = "fp8_block_gemm", "layernorm_residual", "matmul_bias_gelu", "softmax_rows"


@dataclass(frozen=True)
class Mutant:
    """Describe a fault: the seed `seed` of a problem with the `occurrence`-th `old` replaced by `new`."""

    problem: str
    seed: str
    fault: str
    old: str
    new: str
    occurrence: int = 1

    @property
    def name(self) -> str:
        """Return what to call it in reports."""
        return f"{self.problem}/{self.seed}: {self.fault}"

    def text(self) -> str:
        """Return the mutated source. Raises ValueError where the seed does not have the text."""
        source = (SHIPPED / self.problem / "seeds" / self.seed).read_text()
        parts = source.split(self.old)
        if len(parts) <= self.occurrence:
            raise ValueError(f"{self.seed} has no {self.old!r} number {self.occurrence}")
        head, tail = self.old.join(parts[: self.occurrence]), self.old.join(parts[self.occurrence :])
        return head + self.new + tail


BARRIER = "__syncthreads();"
MUTANTS = (
    Mutant(
        FP8,
        "mfma.hip",
        "lane map swapped",
        "group = lane / 16, within = lane % 16",
        "group = lane % 4, within = lane / 4",
    ),
    Mutant(
        FP8,
        "mfma.hip",
        "output transposed within the tile",
        "out[(row + wave * 16 + group * 4 + r) * n + col + t * 16 + within]",
        "out[(row + wave * 16 + within) * n + col + t * 16 + group * 4 + r]",
    ),
    Mutant(
        FP8,
        "mfma.hip",
        "wrong k group of the left factor",
        "within][p + group * 8]",
        "within][p + (group ^ 1) * 8]",
    ),
    Mutant(
        FP8, "mfma.hip", "k groups four apart", "[p + group * 8]);\n        sum", "[p + group * 4]);\n        sum"
    ),
    Mutant(FP8, "mfma.hip", "missing barrier after the load", BARRIER, "", 1),
    Mutant(FP8, "mfma.hip", "last 32 of k left out", "p < DEPTH; p += 32", "p < DEPTH - 32; p += 32"),
    Mutant(FP8, "mfma.hip", "rows of LDS overlap", "PITCH = DEPTH + 8", "PITCH = DEPTH - 8"),
    Mutant(
        FP8,
        "mfma.hip",
        "right factor never loaded (uninitialised LDS)",
        "turn(right, b, n, col, block * DEPTH);",
        "",
    ),
    Mutant(FP8, "mfma.hip", "tiles of columns overlap", "right[t * 16 + within]", "right[t * 8 + within]"),
    Mutant(FP8, "mfma.hip", "scale of another row", "group * 4 + r + block * m]", "group * 4 + block * m]"),
    Mutant(
        FP8, "mfma.hip", "loads twice the tile (LDS overflow)", "at < TILE / 4 * DEPTH", "at < TILE / 2 * DEPTH"
    ),
    Mutant(
        FP8,
        "mfma.hip",
        "bf8 for fp8",
        "= __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8",
        "= __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8",
    ),
    Mutant(
        FP8,
        "mfma.hip",
        "matrix instruction in a divergent branch",
        "sum[t] = __builtin",
        "if (lane < 48) sum[t] = __builtin",
    ),
    Mutant(FP8, "mfma.hip", "one wave too few", "TILE), THREADS, 0", "TILE), THREADS - 64, 0"),
    Mutant(FP8, "naive.hip", "fn for fnuz (bias of one less)", "* 128.0f", "* 256.0f"),
    Mutant(FP8, "naive.hip", "k off by one", "p < (block + 1) * 128", "p <= (block + 1) * 128"),
    Mutant(FP8, "naive.hip", "row-major for column-major", "a[i + p * m]", "a[i * k + p]"),
    Mutant(FP8, "naive.hip", "columns of another block", "j = blockIdx.y * 16", "j = blockIdx.x * 16"),
    Mutant(LAYERNORM, "rows.hip", "missing barrier before the sum", BARRIER, "", 2),
    Mutant(LAYERNORM, "rows.hip", "missing barrier between two sums", BARRIER, "", 1),
    Mutant(LAYERNORM, "rows.hip", "half of the wave summed", "step = 32", "step = 16"),
    Mutant(LAYERNORM, "rows.hip", "one wave too many summed", "wave < THREADS / 64", "wave <= THREADS / 64"),
    Mutant(LAYERNORM, "rows.hip", "column off by one", "c < cols; c += THREADS", "c <= cols; c += THREADS", 3),
    Mutant(
        LAYERNORM, "rows.hip", "last column left out", "c < cols; c += THREADS", "c < cols - 1; c += THREADS", 1
    ),
    Mutant(SOFTMAX, "rows.hip", "missing barrier", BARRIER, ""),
    Mutant(SOFTMAX, "rows.hip", "half of the wave merged", "step = 32", "step = 16"),
    Mutant(
        SOFTMAX,
        "rows.hip",
        "LDS indexed by half waves (overflow)",
        "tops[threadIdx.x / 64] = top",
        "tops[threadIdx.x / 32] = top",
    ),
    Mutant(
        SOFTMAX,
        "rows.hip",
        "own sum counted twice",
        "  top = -INFINITY, sum = 0.0f;\n  for (int wave",
        "  for (int wave",
    ),
    Mutant(SOFTMAX, "rows.hip", "one row too many", "<<<rows,", "<<<rows + 1,"),
    Mutant(SOFTMAX, "rows.hip", "shuffle between neighbours only", "__shfl_xor(sum, step)", "__shfl_xor(sum, 1)"),
    Mutant(PRODUCT, "tiled.hip", "missing barrier after the load", BARRIER, "", 1),
    Mutant(PRODUCT, "tiled.hip", "missing barrier before the next load", BARRIER, "", 2),
    Mutant(PRODUCT, "tiled.hip", "bounds of rows off by one", "row + r < m && start", "row + r <= m && start"),
    Mutant(PRODUCT, "tiled.hip", "bounds of columns missing", "if (r < m && c < n)", "if (r < m)"),
    Mutant(
        PRODUCT,
        "tiled.hip",
        "columns permuted",
        "right[p][j + 16 * u]",
        "right[p][j * 8 + u]",
    ),
    Mutant(
        PRODUCT, "tiled.hip", "LDS of half the width (overflow)", "right[DEPTH][TILE];", "right[DEPTH][TILE / 2];"
    ),
    Mutant(PRODUCT, "tiled.hip", "steps of k overlap", "start += DEPTH", "start += DEPTH - 1"),
    Mutant(
        PRODUCT,
        "tiled.hip",
        "barrier in a divergent branch",
        BARRIER,
        "if (threadIdx.x % 2) __syncthreads(); else __syncthreads();",
        1,
    ),
    Mutant(PRODUCT, "tiled.hip", "endless loop", "start += DEPTH", "start += 0"),
)


def seeds() -> list[Path]:
    """Return every HIP seed of the shipped problems."""
    return sorted(SHIPPED.glob("*/seeds/*.hip"))


def emulated(problem: str, source: Source) -> JobResult:
    """Build a kernel and check it in emulation."""
    return evaluate(JobSpec("emulation", read_problem(problem), TARGET, source, effort=Effort.BUILD))


def is_caught(result: JobResult) -> bool:
    """Return whether the emulation itself found a fault."""
    return result.status in CAUGHT and Flag.EMULATED in result.flags


def seed_rows() -> Iterator[str]:
    """Yield a row for each seed: its cases, errors and seconds."""
    yield "| seed | verdict | cases | largest absolute error | seconds |\n|---|---|---|---|---|"
    for path in seeds():
        started = time.monotonic()
        result = emulated(path.parents[1].name, read_source(path))
        verdict = (
            "right" if result.status is Status.CORRECT and Flag.EMULATED in result.flags else str(result.status)
        )
        cases = ", ".join(case.name for case in result.cases)
        error = max((case.max_abs_error or 0.0 for case in result.cases), default=0.0)
        seconds = time.monotonic() - started
        yield f"| {path.parents[1].name}/{path.name} | {verdict} | {cases} | {error:.2g} | {seconds:.1f} |"


def mutant_rows() -> Iterator[str]:
    """Yield a row for each mutant: what was found, and in how many seconds."""
    yield "| mutant | found | seconds |\n|---|---|---|"
    for mutant in MUTANTS:
        started = time.monotonic()
        result = emulated(mutant.problem, Source(Language.HIP, mutant.text()))
        reason = (
            (result.reasons or ["nothing"])[0].partition("emulation: ")[2].split(" (kernel")[0].split(" (inputs")[0]
        )
        found = f"{result.status}: {reason[:150]}" if is_caught(result) else f"**not caught** ({result.status})"
        yield f"| {mutant.name} | {found.replace('|', '/')} | {time.monotonic() - started:.1f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", action="store_true", help="only the seeds")
    parser.add_argument("--mutants", action="store_true", help="only the mutants")
    arguments = parser.parse_args()
    if not arguments.mutants:
        print(*seed_rows(), sep="\n", flush=True)
        print()
    if not arguments.seeds:
        for row in mutant_rows():
            print(row, flush=True)


if __name__ == "__main__":
    main()
