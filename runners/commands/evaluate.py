"""Evaluate one kernel and print the verdict: `python -m runners evaluate`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import uuid
from pathlib import Path
from typing import Any

from runners.commands.reading import UsageError, read_problem, read_source, read_tunables, target_name
from runners.commands.table import table
from runners.harness import evaluate
from runners.job import Baseline, Effort, JobSpec, Limits, Status
from runners.problems.base import ProblemError
from runners.targets import TARGETS
from runners.wire import dumps


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("evaluate", help="build, check and time one kernel")
    add_job_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that describe one evaluation."""
    parser.add_argument("--problem", required=True, metavar="NAME|PATH", help="a shipped problem or a path")
    parser.add_argument("--candidate", required=True, type=Path, metavar="FILE", help=".cpp .hip .cu or .py")
    parser.add_argument(
        "--target",
        default="cpu",
        type=target_name,
        metavar="NAME",
        help=f"one of {', '.join(TARGETS)}, or a product's name",
    )
    parser.add_argument("--baseline", default=Baseline.EAGER.value, choices=[b.value for b in Baseline])
    parser.add_argument("--parent", type=Path, metavar="FILE", help="a second kernel to compare with")
    parser.add_argument("--tunable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--flags", default="", help="compiler flags from the allow-list, in one string")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="short timing")
    effort.add_argument(
        "--emulate", action="store_true", help="build; where the device is absent, check in emulation on the CPU"
    )
    effort.add_argument("--confirm", action="store_true", help="more sessions, all in cold processes")
    parser.add_argument("--total-s", type=float, default=Limits().total_s, help="limit for the whole evaluation")
    parser.add_argument("--call-s", type=float, default=Limits().call_s, help="limit for one call")
    parser.add_argument(
        "--profile", action="store_true", help="profile: which kernels take the time, bound by what"
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print. Return 0 if the kernel was evaluated, 1 if the harness failed, 2 for wrong usage."""
    try:
        spec = job_of(arguments)
    except (UsageError, ProblemError) as error:
        print(f"python -m runners evaluate: {error}", file=sys.stderr)
        return 2
    progress = None if arguments.json or not sys.stderr.isatty() else _show_progress
    result = evaluate(spec, on_progress=progress)
    print(dumps(result) if arguments.json else table(spec, result))
    return 1 if result.status is Status.INFRA_ERROR else 0


def job_of(arguments: argparse.Namespace) -> JobSpec:
    """Return the job that the options describe. Raises UsageError, ProblemError."""
    chosen = {Effort.QUICK: arguments.quick, Effort.BUILD: arguments.emulate, Effort.CONFIRM: arguments.confirm}
    effort = next((effort for effort, wanted in chosen.items() if wanted), Effort.FULL)
    candidate = read_source(arguments.candidate)
    candidate = dataclasses.replace(
        candidate, tunables=read_tunables(arguments.tunable), flags=tuple(arguments.flags.split())
    )
    return JobSpec(
        job_id=uuid.uuid4().hex,
        problem=read_problem(arguments.problem),
        target=arguments.target,
        candidate=candidate,
        effort=effort,
        baseline=Baseline(arguments.baseline),
        parent=read_source(arguments.parent) if arguments.parent else None,
        limits=Limits(total_s=arguments.total_s, call_s=arguments.call_s),
        profile=arguments.profile,
    )


def _show_progress(stage: str, text: str) -> None:
    print(f"\r\x1b[K{stage} {text}", end="", file=sys.stderr, flush=True)
