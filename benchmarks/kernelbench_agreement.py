"""Compare our call time with that of KernelBench's own evaluator, for the same kernels in one machine start.

    python benchmarks/kernelbench_agreement.py --kernelbench CHECKOUT [--problems DIR] [--only NAME…] --out FILE.json

The kernels are the files `benchmarks/agreement/KIND/L<level>_<problem>.py`. Problems come from DIR by the same name,
else from the checkout. First our harness evaluates all of them with full effort. Then, with our processes gone,
KernelBench evaluates each twice in fresh processes (`kernelbench_evaluator.py`): its speedup is its time of the
reference by its time of the candidate. Differences of more than 3 % are explained by the rules of `agreement_rules.py`
or by none.

FILE keeps what is done, so that a call with `--budget-s` can be continued by another. Exit code 0: every selected
kernel was compared, and agrees or is explained.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.agreement_rules import AGREES, Ours, Verdict, explained, loop_speedup, scatter, speedup, theirs
from benchmarks.kernelbench_evaluator import Evaluated, evaluate_in_process
from runners.harness import evaluate
from runners.harness.devices.device import device_for
from runners.harness.oracle.pool import pool
from runners.job import Effort, JobResult, JobSpec, Language, ProblemBundle, Source, Speedup
from runners.problems import load
from runners.targets import target

KERNELS = Path(__file__).parent / "agreement"
LANGUAGES = {"triton": Language.TRITON, "cuda": Language.PYTHON, "torch": Language.PYTHON}
BACKENDS = {"triton": "triton", "cuda": "cuda", "torch": "triton"}
"""How KernelBench loads each kind; `triton` stands for any Python module."""
RUNS = 2


@dataclass(frozen=True)
class Kernel:
    """Hold one file of `benchmarks/agreement`, for the problem of its name."""

    path: Path

    @property
    def problem(self) -> str:
        """Return the problem as `L<level>_<number>_<name>`."""
        return self.path.stem

    @property
    def kind(self) -> str:
        """Return `triton`, `cuda` or `torch`."""
        return self.path.parent.name

    @property
    def key(self) -> str:
        """Return the name under which results are kept."""
        return f"{self.kind}/{self.problem}"


class Results:
    """Keep what is done so far, by kernel, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def ours(self, kernel: Kernel) -> Ours | None:
        """Return our figures, None where there are none yet."""
        row = self._rows.get(kernel.key, {})
        return Ours(**row["ours"]) if "ours" in row else None

    def runs(self, kernel: Kernel) -> list[Evaluated]:
        """Return KernelBench's runs so far."""
        return [Evaluated(**run) for run in self._rows.get(kernel.key, {}).get("theirs", [])]

    def keep(self, kernel: Kernel, new: Ours | Evaluated) -> None:
        """Add what one evaluation found, and write the file."""
        row = self._rows.setdefault(kernel.key, {})
        if isinstance(new, Ours):
            row["ours"] = asdict(new)
        else:
            row.setdefault("theirs", []).append(asdict(new))
        self._path.write_text(json.dumps(self._rows, indent=1))


def main() -> int:
    """Evaluate what is not yet in the file, print the table; 1 where a difference has no explanation."""
    arguments = _arguments()
    kernels = selected(arguments.only)
    places = {
        kernel.key: problem_file(kernel.problem, arguments.kernelbench, arguments.problems) for kernel in kernels
    }
    results, ends = Results(arguments.out), time.monotonic() + arguments.budget_s
    _evaluate_ours(kernels, places, results, arguments.target, ends)
    _evaluate_theirs(kernels, places, results, arguments.kernelbench, ends)
    return report(kernels, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="problems as L1_19_ReLU.py and so on")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="parts of names, such as triton or L2_12"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="start no evaluation after so many seconds"
    )
    parser.add_argument("--target", default="sm_90")
    arguments = parser.parse_args()
    if not (arguments.kernelbench / "src" / "kernelbench").is_dir():
        parser.error(f"{arguments.kernelbench} has no src/kernelbench")
    if not selected(arguments.only):
        parser.error(f"no kernel is called {' or '.join(arguments.only)}")
    return arguments


def selected(only: list[str]) -> list[Kernel]:
    """Return the kernels whose key contains one of the words, all without words; in the order of their problems."""
    kernels = [Kernel(path) for path in KERNELS.glob("*/L*.py")]
    kernels = [kernel for kernel in kernels if not only or any(word in kernel.key for word in only)]
    return sorted(kernels, key=lambda kernel: (_numbers(kernel.problem), kernel.kind))


def _numbers(problem: str) -> tuple[int, int]:
    level, number = problem.removeprefix("L").split("_")[:2]
    return int(level), int(number)


def problem_file(problem: str, checkout: Path, problems: Path | None) -> Path:
    """Return the problem's file: that of the folder, else the checkout's. Raises FileNotFoundError."""
    level, name = problem.removeprefix("L").split("_", 1)
    places = [problems / f"{problem}.py"] if problems else []
    places.append(checkout / "KernelBench" / f"level{level}" / f"{name}.py")
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(" and ".join(str(place) for place in places))


def _evaluate_ours(
    kernels: list[Kernel], places: dict[str, Path], results: Results, target_key: str, ends: float
) -> None:
    """Evaluate by our harness; then end its processes, so that KernelBench finds a device of its own."""
    for kernel in kernels:
        if results.ours(kernel) is None and time.monotonic() < ends:
            results.keep(kernel, _ours_once(kernel, load(places[kernel.key]), target_key))
    here = target(target_key)
    pool(device_for(here.vendor, here.flush_bytes)).close()


def _ours_once(kernel: Kernel, bundle: ProblemBundle, target_key: str) -> Ours:
    source = Source(LANGUAGES[kernel.kind], kernel.path.read_text())
    started = time.monotonic()
    result = evaluate(JobSpec("agreement", bundle, target_key, source, Effort.FULL))
    ours = ours_of(result, time.monotonic() - started)
    shown = f"call {ours.call[0]:.3f}" if ours.call else "; ".join(ours.reasons)[:160]
    print(f"ours    {kernel.key:<48} {ours.seconds:5.1f} s  {ours.status} {shown}", flush=True)
    return ours


def ours_of(result: JobResult, seconds: float) -> Ours:
    """Return what is compared of a result. KernelBench problems have one timed case."""
    case = next((case for case in result.cases if case.candidate_call_us is not None), None)
    device = {"candidate": case.candidate_us, "reference": case.baseline_us} if case else {}
    call = {"candidate": case.candidate_call_us, "reference": case.baseline_call_us} if case else {}
    return Ours(
        result.status.value,
        round(seconds, 2),
        result.reasons,
        sorted({*result.flags, *(case.flags if case else [])}),
        _interval(result.speedup),
        _interval(result.call_speedup),
        {side: us for side, us in device.items() if us is not None},
        {side: us for side, us in call.items() if us is not None},
        {key: result.environment.get(key) for key in ("gpu", "driver", "torch", "triton")},
    )


def _interval(found: Speedup | None) -> list[float] | None:
    return None if found is None else [found.median, found.low, found.high]


def _evaluate_theirs(
    kernels: list[Kernel], places: dict[str, Path], results: Results, checkout: Path, ends: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kernel in kernels:
            builds = Path(folder) / kernel.problem
            builds.mkdir(exist_ok=True)
            while len(results.runs(kernel)) < RUNS and time.monotonic() < ends:
                results.keep(kernel, _theirs_once(kernel, places[kernel.key], checkout, builds))


def _theirs_once(kernel: Kernel, place: Path, checkout: Path, builds: Path) -> Evaluated:
    """Evaluate by KernelBench; its second run finds what `load_inline` compiled in the first."""
    texts = place.read_text(), kernel.path.read_text()
    run = evaluate_in_process(checkout, *texts, BACKENDS[kernel.kind], builds, look=True)
    shown = run.error[-300:] if run.error else f"{speedup(run):.3f}"
    print(f"theirs  {kernel.key:<48} {run.seconds:5.1f} s  {shown}", flush=True)
    return run


def report(kernels: list[Kernel], results: Results) -> int:
    """Print a line for each kernel and a summary; 1 where a kernel is not compared or not explained."""
    rows = [(kernel, results.ours(kernel), results.runs(kernel)) for kernel in kernels]
    done = [(kernel, ours, runs) for kernel, ours, runs in rows if ours is not None and len(runs) >= RUNS]
    print(
        f"\n{'problem':<40} {'kind':<6} {'ours: device':>12} {'call [interval]':>24} "
        f"{'theirs, two runs':>17} {'ratio':>6}  verdict"
    )
    verdicts = [explained(ours, runs) for _, ours, runs in done]
    for (kernel, ours, runs), verdict in zip(done, verdicts, strict=True):
        print(_line(kernel, ours, runs, verdict))
        if verdict.rule != AGREES and ours.call and not any(run.error for run in runs):
            print(f"{'':<6}{_times(ours, runs)}")
    undone = [kernel.key for kernel, _, _ in rows if kernel not in [one for one, _, _ in done]]
    return _summary(done, verdicts, undone)


def _line(kernel: Kernel, ours: Ours, runs: list[Evaluated], verdict: Verdict) -> str:
    head = f"{kernel.problem[:40]:<40} {kernel.kind:<6}"
    if not ours.call or any(run.error for run in runs):
        return f"{head} {verdict.rule}: {verdict.words}"
    device = f"{ours.device[0]:12.3f}" if ours.device else f"{'-':>12}"
    call = "{:.3f} [{:.3f}, {:.3f}]".format(*ours.call)
    both = " ".join(f"{speedup(run):.3f}" for run in runs)
    ratio = ours.call[0] / theirs(runs)
    return f"{head} {device} {call:>24} {both:>17} {ratio:6.3f}  {verdict.rule}: {verdict.words}"


def _times(ours: Ours, runs: list[Evaluated]) -> str:
    """Return the times behind a difference in µs, candidate and reference."""
    sides = ("candidate", "reference")
    parts = [("device", ours.device_us), ("call", ours.call_us)]
    parts += [
        (f"trial {n}", {side: 1e3 * median(run.figures[side]) for side in sides}) for n, run in enumerate(runs, 1)
    ]
    loops = [run.figures["loops"]["no_grad"] for run in runs]
    parts += [(f"loop {n}", {side: 1e3 * median(loop[side]) for side in sides}) for n, loop in enumerate(loops, 1)]
    words = [f"{name} {times[sides[0]]:.1f} / {times[sides[1]]:.1f}" for name, times in parts if times]
    return f"µs: {', '.join(words)}; loop speedup {loop_speedup(runs):.3f}; {' '.join(ours.flags)}"


def _summary(done: list[tuple[Kernel, Ours, list[Evaluated]]], verdicts: list[Verdict], undone: list[str]) -> int:
    _print_figures([(ours, runs) for _, ours, runs in done], verdicts)
    left = [
        f"{kernel.key} ({verdict.rule})"
        for (kernel, _, _), verdict in zip(done, verdicts, strict=True)
        if not verdict.is_explained
    ]
    print(f"not explained: {', '.join(left) or 'none'}; not done: {', '.join(undone) or 'none'}")
    return 1 if left or undone else 0


def _print_figures(done: list[tuple[Ours, list[Evaluated]]], verdicts: list[Verdict]) -> None:
    compared = [(ours.call[0], runs) for ours, runs in done if ours.call and not any(run.error for run in runs)]
    if not compared:
        return
    apart = sorted(abs(call / theirs(runs) - 1) for call, runs in compared)
    own = sorted(scatter(runs) for _, runs in compared)
    print(
        f"\n{len(compared)} compared, {sum(verdict.rule == AGREES for verdict in verdicts)} agree; "
        f"|ours / theirs - 1| median {median(apart):.2%}, largest {apart[-1]:.2%}; "
        f"their own two runs: median {median(own):.2%}, largest {own[-1]:.2%}"
    )
    seconds = [
        _seconds([ours.seconds for ours, _ in done]),
        _seconds([run.seconds for _, runs in done for run in runs]),
    ]
    print(f"seconds: ours {seconds[0]}; one run of theirs {seconds[1]}; {done[0][0].environment}")


def _seconds(found: list[float]) -> str:
    return f"median {median(found):.1f}, largest {max(found):.1f}"


if __name__ == "__main__":
    sys.exit(main())
