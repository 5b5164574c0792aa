"""Decide in CI whether a kernel may replace another: `python -m runners gate`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import uuid
from pathlib import Path
from typing import Any

from runners.commands.reading import UsageError, read_problem, read_source, target_name
from runners.gate.decision import DETECT, LOOKS_LIMIT, MOST_LOOKS, Decision, Rules, Ruling, decide
from runners.gate.reports import junit, markdown, plain
from runners.harness import evaluate
from runners.job import Baseline, JobSpec, Limits
from runners.problems.base import ProblemError

MOST_TOLERANCE = 1.0


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "gate", help="exit with 3 if a kernel is slower, 4 if it is wrong, 5 if undecided"
    )
    parser.add_argument("--problem", required=True, metavar="NAME|PATH", help="a shipped problem or a path")
    parser.add_argument("--candidate", required=True, type=Path, metavar="FILE", help="the new kernel")
    parser.add_argument("--against", required=True, type=Path, metavar="FILE", help="the kernel it is to replace")
    parser.add_argument("--target", default="cpu", type=target_name, metavar="NAME", help="gfx942, H100, cpu …")
    parser.add_argument(
        "--tolerance",
        default=0.0,
        type=_share,
        metavar="SHARE",
        help="slow-down to accept: 0.02 is 2 %% (default: 0)",
    )
    parser.add_argument(
        "--detect",
        default=DETECT,
        type=_share,
        metavar="SHARE",
        help="slow-down beyond the tolerance that the gate must be able to detect (default: %(default)s)",
    )
    parser.add_argument(
        "--looks", default=MOST_LOOKS, type=_looks, metavar="N",
        help="comparisons at most before the gate says that it cannot decide (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--total-s", type=float, default=Limits().total_s, help="limit for one evaluation")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="append a summary, as to $GITHUB_STEP_SUMMARY"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Decide and report.

    Return 0 if not slower, 3 if slower, 4 if wrong, 5 if undecided, 1 without a verdict, 2 for wrong usage.
    """
    try:
        spec = _spec(arguments)
        decision = decide(spec, Rules(arguments.tolerance, arguments.detect, arguments.looks), evaluate)
        names = (spec.problem.name, arguments.candidate.name, arguments.against.name)
        _write(arguments, decision, names)
    except (UsageError, ProblemError, OSError) as error:
        print(f"python -m runners gate: {error}", file=sys.stderr)
        return 2
    print(json.dumps(plain(decision), allow_nan=False) if arguments.json else _line(decision, names))
    return int(decision.ruling)


def _spec(arguments: argparse.Namespace) -> JobSpec:
    return JobSpec(
        job_id=uuid.uuid4().hex,
        problem=read_problem(arguments.problem),
        target=arguments.target,
        candidate=read_source(arguments.candidate),
        parent=read_source(arguments.against),
        baseline=Baseline.EAGER,
        limits=Limits(total_s=arguments.total_s),
    )


def _write(arguments: argparse.Namespace, decision: Decision, names: tuple[str, str, str]) -> None:
    if arguments.junit:
        arguments.junit.write_text(junit(decision, *names), encoding="utf-8")
    if arguments.markdown:
        # Several gates of one job share the summary's file.
        with arguments.markdown.open("a", encoding="utf-8") as file:
            file.write(markdown(decision, *names))


def _line(decision: Decision, names: tuple[str, str, str]) -> str:
    problem, candidate, against = names
    relation = "has" if decision.ruling is Ruling.NO_VERDICT else "is"
    compared = f" than {against}" if decision.ruling in (Ruling.NOT_SLOWER, Ruling.SLOWER) else ""
    return f"{problem}: {candidate} {relation} {decision.ruling.in_words}{compared}\n  {decision.reason}"


def _share(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 <= value <= MOST_TOLERANCE:
        raise argparse.ArgumentTypeError(f"{text}: a share from 0 to {MOST_TOLERANCE:g}; 0.02 is 2 %")
    return value


def _looks(text: str) -> int:
    value = int(text)
    if not 1 < value <= LOOKS_LIMIT:
        raise argparse.ArgumentTypeError(f"{text}: 2 to {LOOKS_LIMIT}; one comparison never shows a slow-down")
    return value
