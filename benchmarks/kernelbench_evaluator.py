"""Run KernelBench's own evaluator in a process of its own, as its scripts run it by default.

    python benchmarks/kernelbench_evaluator.py CHECKOUT/src PROBLEM.py CANDIDATE.py BACKEND BUILD_DIR [--look]

Five correctness trials and a hundred trials timed by CUDA events, each from an idle device whose cache has just been
overwritten. The last line of the output is a JSON object (see `evaluate_in_process`). Clients of language models and
data sets, which its evaluation imports and does not use, are replaced by nothing where they are missing.

With `--look` three things are added, none of which changes what it times. The problem's inputs are made on the device,
since a host takes half a minute for a tensor of six gigabytes and KernelBench makes seven. Its reference is also timed
before the candidate, by the function with which it publishes baselines; its evaluation itself times the reference
after the candidate. At the end both are timed by a steady loop, the way in which `runners.harness` measures call time,
so that a difference between two tools can be told from a difference between two ways of timing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

CORRECTNESS_TRIALS, TIMED_TRIALS = 5, 100
LOOP_S, LOOP_UNITS, MOST_LOOP_CALLS = 0.03, 4, 100
"""A steady loop takes about LOOP_S; each side is looped twice a unit, in the order A B B A."""
MARK = "KERNELBENCH "
ON_DEVICE = """

_inputs_on_the_host = get_inputs


def get_inputs():
    with torch.device("cuda"):
        return _inputs_on_the_host()
"""


@dataclass(frozen=True)
class Evaluated:
    """Hold what a process of KernelBench's answered. `figures` holds times in ms by `candidate`, `reference` and with
    `look` `reference_first`, lists of one for each trial, and `loops`: by grad mode (`no_grad`, `grad`) and side, lists
    of the mean time of a call in ms. It is empty where the evaluation failed; `error` then says how."""

    seconds: float
    error: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


def evaluate_in_process(
    checkout: Path,
    problem: str,
    candidate: str,
    backend: str,
    build_dir: Path,
    *,
    look: bool,
    timeout_s: float = 300.0,
) -> Evaluated:
    """Evaluate a candidate's text by KernelBench in a fresh process. `build_dir` keeps what `load_inline` compiles."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("problem.py", "candidate.py")]
        for place, content in zip(places, (problem, candidate), strict=True):
            place.write_text(content)
        settings = {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCH_EXTENSIONS_DIR": str(build_dir)}
        settings["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where pip puts ninja
        argv = [sys.executable, "-P", __file__, str(checkout / "src"), *map(str, places), backend, str(build_dir)]
        argv += ["--look"] if look else []
        started = time.monotonic()
        try:
            done = subprocess.run(
                argv, env={**os.environ, **settings}, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return Evaluated(timeout_s, f"no answer within {timeout_s:.0f} s")
    return _read(done, time.monotonic() - started)


def _read(done: subprocess.CompletedProcess[str], seconds: float) -> Evaluated:
    answers = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not answers:
        output = (done.stdout + done.stderr).strip()
        return Evaluated(seconds, f"exit code {done.returncode}: {output[-800:]}")
    answer = json.loads(answers[-1].removeprefix(MARK))
    return Evaluated(seconds, answer["error"], answer["figures"])


def main() -> int:
    """Evaluate in this process and print the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "problem", "candidate", "backend", "build_dir"):
        parser.add_argument(name)
    parser.add_argument("--look", action="store_true")
    arguments = parser.parse_args()
    evaluation, timing = import_kernelbench(arguments.source)
    recorder = Recorder(timing)
    problem, candidate = (Path(place).read_text() for place in (arguments.problem, arguments.candidate))
    if arguments.look:
        problem += ON_DEVICE
        if timing.measure_ref_program_time("reference", problem, num_trials=TIMED_TRIALS) is None:
            raise RuntimeError("KernelBench could not time the reference")
    result = evaluation.eval_kernel_against_ref(
        problem, candidate, num_correct_trials=CORRECTNESS_TRIALS, num_perf_trials=TIMED_TRIALS,
        measure_performance=True, device=0, backend=arguments.backend, build_dir=arguments.build_dir,
    )  # fmt: skip
    error = "" if result and result.compiled and result.correctness else f"not evaluated: {result}"[:800]
    figures = {} if error else recorder.figures(look=arguments.look)
    print(MARK + json.dumps({"error": error, "figures": figures}))
    return 0


def import_kernelbench(source: str) -> tuple[Any, Any]:
    """Return KernelBench's modules `eval` and `timing` from the folder `src` of a checkout."""
    sys.path.insert(0, source)
    for name in ("litellm", "openai", "dotenv", "datasets"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    return importlib.import_module("kernelbench.eval"), importlib.import_module("kernelbench.timing")


class Recorder:
    """Keep the times that KernelBench's timing functions return, of which it publishes a mean with three digits."""

    def __init__(self, timing: Any) -> None:
        self._choose = timing.get_timing_function
        self._models: list[Any] = []
        self._times: list[list[float]] = []
        self._inputs: list[Any] = []
        timing.get_timing_function = self._recording

    def _recording(self, *arguments: Any, **options: Any) -> Callable[..., list[float]]:
        measure = self._choose(*arguments, **options)

        def recorded(model: Any, inputs: list[Any], *rest: Any, **named: Any) -> list[float]:
            times: list[float] = measure(model, inputs, *rest, **named)
            self._models, self._inputs = [*self._models, model][-2:], inputs
            self._times.append(list(times))
            return times

        return recorded

    def figures(self, *, look: bool) -> dict[str, Any]:
        """Return the times of the candidate and of the reference after it, with `look` all that it adds."""
        candidate, reference = self._times[-2:]
        figures: dict[str, Any] = {"candidate": candidate, "reference": reference}
        if look:
            figures["reference_first"] = self._times[0]
            sides = dict(zip(("candidate", "reference"), self._models, strict=True))
            figures["loops"] = {
                mode: steady_loops(sides, self._inputs, mode == "grad") for mode in ("no_grad", "grad")
            }
        return figures


def steady_loops(sides: dict[str, Callable[..., Any]], inputs: list[Any], grad: bool) -> dict[str, list[float]]:
    """Call both sides in loops, in palindromic order, each warmed; return the mean times of a call in ms."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in sides}
    with torch.set_grad_enabled(grad):
        slowest_s = max(_loop_s(model, inputs, 1) for model in sides.values())
        calls = max(3, min(MOST_LOOP_CALLS, round(LOOP_S / slowest_s)))
        for unit in range(LOOP_UNITS):
            order = list(sides) if unit % 2 else list(sides)[::-1]
            for name in (*order, *order[::-1]):
                times[name].append(1e3 * _loop_s(sides[name], inputs, calls))
    return times


def _loop_s(model: Callable[..., Any], inputs: list[Any], calls: int) -> float:
    """Return the time of a call in a loop that ends when the device is idle, in s."""
    import torch

    for _ in range(2):
        model(*inputs)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(calls):
        model(*inputs)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / calls


if __name__ == "__main__":
    sys.exit(main())
