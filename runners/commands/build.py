"""Compile one kernel for a target, which may be absent, and report its resources: `python -m runners build`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from runners.commands.reading import UsageError, read_problem, read_source, read_tunables
from runners.errors import InfraFailure
from runners.job import BuildReport, KernelResources, Source
from runners.problems import open_bundle
from runners.problems.base import Problem, ProblemError, Purpose
from runners.sandbox import SandboxError
from runners.targets import Target, UnknownTarget, target
from runners.verbs.building import build
from runners.wire import to_plain

COLUMNS = ("vgpr", "agpr", "sgpr", "registers", "lds_bytes", "scratch_bytes", "vgpr_spills", "occupancy",
           "matrix_instructions", "code_bytes")  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("build", help="compile one kernel for a target and report its resources")
    parser.add_argument("file", type=Path, metavar="FILE", help=".cpp .hip .cu or .py")
    parser.add_argument("--target", required=True, metavar="NAME", help="gfx942, MI300X, sm_90, H100, cpu …")
    parser.add_argument("--problem", metavar="NAME|PATH", help="whose shapes and symbol; needed for modules")
    parser.add_argument("--tunable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--flags", default="", help="compiler flags from the allow-list, in one string")
    parser.add_argument("--assembly", action="store_true", help="print the assembly too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build and print. Return 0 if it was built, 1 if it does not build, 2 for wrong usage or a missing tool."""
    try:
        wanted = target(arguments.target)
        source = _source(arguments)
        problem = open_bundle(read_problem(arguments.problem)) if arguments.problem else None
        report = build(source, wanted, problem)
    except (UsageError, ProblemError, UnknownTarget, InfraFailure, SandboxError) as error:
        print(f"python -m runners build: {error}", file=sys.stderr)
        return 2
    bounds = bounds_us(wanted, problem) if problem else {}
    print(_json(wanted, report, bounds) if arguments.json else _text(wanted, report, bounds))
    if arguments.assembly and not arguments.json:
        print(*report.assembly.values(), sep="\n")
    return 0 if report.ok else 1


def bounds_us(wanted: Target, problem: Problem) -> dict[str, float | None]:
    """Return the roofline bound of each benchmark case in µs, None if its work is not known."""
    cases = problem.cases(wanted.key, Purpose.BENCHMARK)
    return {case.name: wanted.roofline_us(problem.work(case)) for case in cases}


def _source(arguments: argparse.Namespace) -> Source:
    found = read_source(arguments.file)
    flags = tuple(arguments.flags.split())
    return Source(found.language, found.text, read_tunables(arguments.tunable), flags)


def _json(wanted: Target, report: BuildReport, bounds: dict[str, float | None]) -> str:
    return json.dumps({"target": wanted.key, "build": to_plain(report), "roofline_us": bounds}, allow_nan=False)


def _text(wanted: Target, report: BuildReport, bounds: dict[str, float | None]) -> str:
    how = "built" if report.ok else "does not build"
    cached = ", from the cache" if report.cached else ""
    lines = [f"{wanted.title} ({wanted.arch}): {how} in {report.seconds:.2f} s{cached}"]
    lines += [_kernel(kernel) for kernel in report.kernels]
    lines += [f"  roofline {name}: {bound:.2f} µs" for name, bound in bounds.items() if bound is not None]
    return "\n".join([*lines, report.log] if report.log and not report.ok else lines)


def _kernel(kernel: KernelResources) -> str:
    told = {name: getattr(kernel, name) for name in COLUMNS if getattr(kernel, name) is not None}
    constants = kernel.extra.get("constants")
    which = f" {constants}" if constants else ""
    return f"  {kernel.name[:60]}{which}: " + ", ".join(f"{name} {value}" for name, value in told.items())
