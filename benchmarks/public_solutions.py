"""Evaluate public H100 solutions of kernelbench.com's hard benchmark on all shapes, on this machine's GPU.

    python -m benchmarks.public_solutions CHECKOUT --list          # which ones, and what is published of them
    python -m benchmarks.public_solutions CHECKOUT --json FOLDER --budget-s 1500

CHECKOUT is a working tree of the public repository Infatoshi/kernelbench.com; benchmarks/hard/problems-h100,
benchmarks/hard/src, public/runs/h100 and public/data/rundetail/h100 of it are enough. Per shape the time, call time and
share of the benchmark's peak are printed beside the published figures, which come from an H100 PCIe; the peak is that
card's in both. Solutions whose result lies in the JSON folder already are not evaluated again.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.commands.reading import language_of
from runners.doctor import local_targets
from runners.harness import evaluate
from runners.job import CaseResult, Effort, JobResult, JobSpec, Limits, Source, Status
from runners.problems import find, load, open_bundle
from runners.problems.base import Purpose
from runners.problems.kernelbench_hard import KernelBenchHardProblem
from runners.wire import dumps, loads

_BESIDE = re.compile(r"\b__file__\b|#\s*include\s*[<\"](cutlass|cute)/")
SUFFIX = "_solution.py.txt"
LIMITS = Limits(build_s=600.0, call_s=60.0, total_s=1200.0, memory_bytes=32 << 30)


@dataclass(frozen=True)
class Solution:
    """Hold a published solution with what its run's file says of it. `kind` is `cuda`, `triton` or `torch`."""

    name: str
    problem: str
    author: str
    kind: str
    text: str
    published: dict[str, Any]

    @property
    def fraction(self) -> float:
        """Return the published share of the peak, or 0 where there is none."""
        return float(self.published.get("peak_fraction") or 0.0)


def problems_of(checkout: Path) -> dict[str, Path]:
    """Return the H100 problems by name."""
    return {path.name: path for path in find(checkout / "benchmarks" / "hard" / "problems-h100")}


def solutions_of(checkout: Path, problems: dict[str, Path]) -> list[Solution]:
    """Return every published solution of the problems, by name."""
    found = []
    for path in sorted((checkout / "public" / "runs" / "h100").glob(f"*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        problem = next((p for p in problems if name.endswith(f"_{p}")), None)
        if problem is not None:
            text, detail = (
                path.read_text(errors="replace"),
                checkout / "public/data/rundetail/h100" / f"{name}.json",
            )
            published = json.loads(detail.read_text()) if detail.is_file() else {}
            author = str(published.get("model", "?")).rpartition("/")[2].partition("[")[0]
            found.append(Solution(name, problem, author, kind_of(text), text, published))
    return found


def kind_of(text: str) -> str:
    """Tell what a solution's kernels are written in."""
    if "__global__" in text or "load_inline" in text:
        return "cuda"
    return "triton" if "triton.jit" in text else "torch"


def is_python(text: str) -> bool:
    """Tell whether a published text is still a Python module: a few were altered when they were published."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def why_not(solution: Solution) -> str:
    """Return why a solution is not among those to choose from; empty where it is.

    Files beside it and CUTLASS's headers were part of the machine that it was written on, not of what is published.
    """
    if not solution.published.get("correct"):
        return "not correct where it was published"
    if solution.kind == "torch":
        return "no kernel of its own"
    if not is_python(solution.text):
        return "the published text is no Python module"
    if _BESIDE.search(solution.text):
        return "reads or writes files beside itself, or includes CUTLASS"
    return ""


def chosen(solutions: list[Solution], count: int) -> list[Solution]:
    """Choose at least `count` solutions of those that `why_not` leaves: as many of each problem, CUDA and Triton in
    turn, authors that were not chosen yet first, faster ones first."""
    sound = [solution for solution in solutions if not why_not(solution)]
    problems = sorted({s.problem for s in sound})
    each = -(-count // max(1, len(problems)))
    authors: Counter[str] = Counter()
    picked: list[Solution] = []
    for problem in problems:
        of_kind = {k: [s for s in sound if (s.problem, s.kind) == (problem, k)] for k in ("cuda", "triton")}
        picked += itertools.islice(_in_turn(of_kind, authors), each)
    return picked


def _in_turn(of_kind: dict[str, list[Solution]], authors: Counter[str]) -> Iterator[Solution]:
    """Yield from each kind in turn the solution whose author was chosen least often, then the fastest."""
    while any(of_kind.values()):
        for left in of_kind.values():
            if left:
                best = min(left, key=lambda s: (authors[s.author], -s.fraction, s.name))
                left.remove(best)
                authors[best.author] += 1
                yield best


def evaluated(solution: Solution, problem: Path, target: str) -> JobResult:
    """Evaluate one solution on all shapes."""
    source = Source(language_of(Path("solution.py"), solution.text), solution.text)
    return evaluate(JobSpec(solution.name, load(problem), target, source, Effort.FULL, limits=LIMITS))


def stored(folder: Path | None, solution: Solution) -> JobResult | None:
    """Return an earlier result from the folder."""
    path = folder / f"{solution.name}.json" if folder else None
    return loads(JobResult, path.read_text()) if path and path.is_file() else None


def rows_of(solution: Solution, problem: KernelBenchHardProblem, result: JobResult) -> list[dict[str, Any]]:
    """Return our figures and the published ones, by shape."""
    timed = {case.name: case for case in result.cases if case.candidate_us is not None}
    cases = {case.name: case for case in problem.cases("h100", Purpose.BENCHMARK)}
    published = {int(shape["idx"]): shape for shape in solution.published.get("shapes") or []}
    rows = []
    for index, name in enumerate(problem.shape_names):
        theirs, ours = published.get(index, {}), timed.get(name)
        fraction = problem.peak_fraction(cases[name], ours.candidate_us or 0.0) if ours else None
        their_us = 1e3 * theirs["ms"] if theirs.get("ms") else None
        figures = {"us": _us(ours), "call_us": ours and ours.candidate_call_us, "fraction": fraction}
        rows.append({"shape": name, **figures, "published_us": their_us, "published_fraction": theirs.get("frac")})
    return rows


def _us(case: CaseResult | None) -> float | None:
    return case.candidate_us if case else None


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print one solution's shapes."""
    for row in rows:
        times = f"{_text(row['us'], '.1f'):>10} µs, call {_text(row['call_us'], '.1f'):>10} µs"
        ours = f"{times} {_text(row['fraction'], '.4f'):>7}"
        theirs = f"{_text(row['published_us'], '.1f'):>10} µs {_text(row['published_fraction'], '.4f'):>7}"
        print(f"    {row['shape'][:70]:70} {ours}   published {theirs}")


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def print_list(picked: list[Solution]) -> None:
    """Print what was chosen."""
    for one in picked:
        print(f"{one.problem:22} {one.kind:7} {_text(one.fraction, '.4f')}  {one.author:40} {one.name}")
    kinds = Counter(one.kind for one in picked)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{len(picked)} solutions ({counted}) by {len({one.author for one in picked})} authors")


def print_summary(outcomes: list[tuple[Solution, JobResult]], left: int) -> None:
    """Print the table of statuses."""
    print(f"\n{'solution':75} {'kind':7} {'status':14} {'seconds':>8}  reason or flags")
    for solution, result in outcomes:
        said = (result.reasons[0].splitlines()[0] if result.reasons else ", ".join(result.flags))[:110]
        seconds = sum(stage.seconds for stage in result.stages)
        print(f"{solution.name[:75]:75} {solution.kind:7} {result.status.value:14} {seconds:8.1f}  {said}")
    counts = Counter(result.status.value for _, result in outcomes)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()) + f"; {left} not begun in time")


def run(arguments: argparse.Namespace) -> int:
    """Choose, evaluate, print. Exit code 1 where the harness failed on any."""
    problems = problems_of(arguments.checkout)
    solutions = solutions_of(arguments.checkout, problems)
    for reason, count in Counter(filter(None, map(why_not, solutions))).most_common():
        print(f"{count} of {len(solutions)} left out: {reason}")
    picked = chosen(solutions, arguments.count)
    picked = [s for s in picked if not arguments.only or any(word in s.name for word in arguments.only)]
    print_list(picked)
    if arguments.list:
        return 0
    outcomes, started = [], time.monotonic()
    for solution in picked:
        if time.monotonic() - started > arguments.budget_s:
            break
        result = stored(arguments.json, solution) or evaluated(
            solution, problems[solution.problem], _target(arguments)
        )
        outcomes.append((solution, result))
        _show(solution, problems[solution.problem], result, arguments.json)
    print_summary(outcomes, len(picked) - len(outcomes))
    return int(any(result.status is Status.INFRA_ERROR for _, result in outcomes))


def _show(solution: Solution, path: Path, result: JobResult, folder: Path | None) -> None:
    problem = open_bundle(load(path))
    if not isinstance(problem, KernelBenchHardProblem):
        raise SystemExit(f"{path}: not a problem of the hard benchmark")
    rows = rows_of(solution, problem, result)
    print(f"\n{solution.name}: {result.status.value} {'; '.join(result.reasons)[:300]}", flush=True)
    print_rows(rows)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{solution.name}.json").write_text(dumps(result, indent=1))
        (folder / f"{solution.name}.rows").write_text(json.dumps(rows, indent=1))


def _target(arguments: argparse.Namespace) -> str:
    if arguments.target:
        return str(arguments.target)
    gpus = [name for name in local_targets() if name != "cpu"]
    if not gpus:
        raise SystemExit("no GPU is here; --list shows the choice, --target cpu evaluates reduced shapes")
    return gpus[0]


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public_solutions", description="Evaluate public solutions."
    )
    parser.add_argument("checkout", type=Path, help="working tree of Infatoshi/kernelbench.com")
    parser.add_argument("--count", type=int, default=24, help="solutions at least (default 24)")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="of these, those whose name contains a word")
    parser.add_argument("--list", action="store_true", help="print the choice and evaluate nothing")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin none after so many seconds")
    parser.add_argument(
        "--json", type=Path, metavar="FOLDER", help="write results there; keep those that are there"
    )
    parser.add_argument("--target", help="target key (default: the GPU that is here)")
    return run(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
