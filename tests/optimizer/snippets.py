"""Build and execute the snippets of the knowledge pages.

`python3 -m tests.optimizer.snippets sm_90` executes every CUDA and Triton snippet for that target on this machine's GPU
and prints a line for each; it needs nvcc, torch and triton, and nothing of the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from optimizer.knowledge import Page, pages
from runners.job import Language

TRITON_CHECK = Path(__file__).with_name("triton_check.py")
# What a check exits with where the hardware lacks the instructions.
UNSUPPORTED = 77
SPECIFIC = {"sm_90": "90a", "sm_100": "100a"}
TIMEOUT_S = 300


@dataclass(frozen=True)
class Outcome:
    """Hold how a command ended: its exit code and everything it printed."""

    code: int
    output: str


def snippets(*languages: Language, target: str = "") -> list[Page]:
    """Return the pages with a snippet in one of these languages that applies to the target."""
    return [page for page in pages() if page.language in languages and page.holds_for(target)]


def on_gpu(page: Page, target: str) -> Outcome:
    """Execute a snippet's check on this machine's GPU."""
    if page.language is Language.TRITON:
        return run_triton([page], "cuda")[page.name]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "check"
        built = compile_cuda(page, target, program)
        return built if built.code else _run([str(program)])


def compile_cuda(page: Page, target: str, product: Path, *options: str) -> Outcome:
    """Compile a CUDA snippet with nvcc, by default to a program that runs its check."""
    number = SPECIFIC.get(target, target.removeprefix("sm_"))
    arch = f"arch=compute_{number},code=sm_{number}"
    command = ["nvcc", "-std=c++17", "-O3", "-gencode", arch, *options, "-o", str(product), str(page.path)]
    return _run(command)


def run_cpp(page: Page, folder: Path, *options: str) -> Outcome:
    """Compile a C++ snippet for this machine and run its check."""
    program = folder / "check"
    built = _run(
        ["g++", "-std=c++17", "-O3", "-march=native", "-fopenmp", *options, "-o", str(program), str(page.path)]
    )
    return built if built.code else _run([str(program)])


def run_triton(wanted: Sequence[Page], device: str) -> dict[str, Outcome]:
    """Run Triton snippets' checks on the GPU, or on the CPU in Triton's interpreter; return how each ended, by name.

    One process imports torch and Triton for all of them, which takes longer than most of the checks.
    """
    env = {**os.environ, "TRITON_INTERPRET": "1"} if device == "cpu" else dict(os.environ)
    paths = [str(page.path) for page in wanted]
    done = _run([sys.executable, str(TRITON_CHECK), device, *paths], env)
    outcomes, rest = {}, done.output
    for page, path in zip(wanted, paths, strict=True):
        said = re.split(rf"^exit (-?\d+) of {re.escape(path)}\n", rest, maxsplit=1, flags=re.MULTILINE)
        # Where the process ended before this snippet's, all that it wrote since the one before says why.
        output, code, rest = said if len(said) > 1 else (rest, str(done.code or 1), rest)
        outcomes[page.name] = Outcome(int(code), output)
    return outcomes


def _run(command: list[str], env: dict[str, str] | None = None) -> Outcome:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(124, f"not done after {TIMEOUT_S} s")
    return Outcome(done.returncode, done.stdout + done.stderr)


def main(target: str) -> int:
    """Execute all snippets for a target, four at a time; return how many failed."""
    if shutil.which("nvcc") is None:
        sys.exit("no nvcc on the path")
    wanted = snippets(Language.CUDA, Language.TRITON, target=target)
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda page: on_gpu(page, target), wanted))
    for page, outcome in zip(wanted, outcomes, strict=True):
        print(f"{'ok    ' if outcome.code == 0 else 'FAILED'} {page.name}: {outcome.output.strip()[-600:]}")
    return sum(outcome.code != 0 for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1] if len(sys.argv) > 1 else "sm_90")))
