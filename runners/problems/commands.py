"""List problems and check whether they can be used: `problems list` and `problems check PATH…`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runners.job import ProblemBundle
from runners.problems import find, load, open_bundle, shipped
from runners.problems.base import ProblemError
from runners.problems.filters import Examination, examine, signed
from runners.problems.signature import Signature, read_signature

GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """Hold the complaints of reading one problem, or its bundle and what running it showed (None: not run)."""

    path: Path
    complaints: tuple[str, ...] = ()
    examination: Examination | None = None
    bundle: ProblemBundle | None = None

    @property
    def runs(self) -> bool:
        """Return whether the reference was run and gave outputs."""
        return self.examination is not None and self.examination.failure is None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command of `python -m runners`."""
    parser = commands.add_parser("problems", help="list problems, or check that they can be used")
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check` and `list`."""
    commands = parser.add_subparsers(dest="problems_command", required=True)
    commands.add_parser("list", help="name the shipped problems")
    looking = commands.add_parser("check", help="read problems and, with --run, run their references")
    looking.add_argument(
        "--run",
        dest="run_references",
        action="store_true",
        help="run each reference in a process of its own and warn",
    )
    add_what_to_look_at(looking)


def add_what_to_look_at(parser: argparse.ArgumentParser) -> None:
    """Add the options that `check` reads, except `run_references`."""
    parser.add_argument("paths", nargs="+", help="shipped names, files or directories; directories are searched")
    parser.add_argument("--target", default="cpu", help="where references are run (default: cpu)")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="limit for one reference")
    parser.add_argument("--memory-gib", type=float, default=6.0, help="limit for one reference")


def run(options: argparse.Namespace) -> int:
    """Run the command. Return 1 if a problem could not be read, or not run with --run."""
    if options.problems_command == "list":
        for name in shipped():
            print(f"{name:24} {open_bundle(load(name)).title}")
        return 0
    return run_check(options)


def run_check(options: argparse.Namespace) -> int:
    """Print what is found, problem by problem, with counts, and return the exit code."""
    findings = check(options.paths, options, report=print_finding)
    _print_counts(findings, ran=options.run_references)
    return int(any(f.complaints or (options.run_references and not f.runs) for f in findings))


def check(paths: list[str], options: argparse.Namespace, report: Callable[[Finding], None]) -> list[Finding]:
    """Read every problem at or below the paths, and run it if asked."""
    findings = []
    for path in (found for name in paths for found in _found(name)):
        findings.append(_look(path, options))
        report(findings[-1])
    return findings


def _found(name: str) -> list[Path]:
    if name in shipped():
        return [Path(name)]
    path = Path(name)
    return (list(find(path)) or [path]) if path.exists() else [path]


def _look(path: Path, options: argparse.Namespace) -> Finding:
    try:
        bundle = load(path)
    except ProblemError as error:
        return Finding(path, tuple(error.complaints))
    if not options.run_references:
        return Finding(path, bundle=bundle)
    memory_bytes = int(options.memory_gib * GIB)
    examination = examine(bundle, options.target, options.timeout_s, memory_bytes)
    return Finding(path, (), examination, signed(bundle, examination.signature))


def signature_of(finding: Finding) -> Signature | None:
    """Return the derived C signature of a problem that was examined, or None for formats that declare theirs."""
    bundle = finding.bundle
    return (
        read_signature(bundle.files, bundle.files[bundle.entry])
        if bundle and bundle.entry in bundle.files
        else None
    )


def print_finding(finding: Finding) -> None:
    """Print what was found about one problem."""
    examination = finding.examination
    label = f"{finding.path.parent.name}/{finding.path.name}"
    for complaint in finding.complaints:
        print(f"cannot be read  {label}: {complaint}", flush=True)
    if examination is None:
        return
    if examination.failure:
        print(f"does not run    {label}: {examination.failure}", flush=True)
        return
    reduced = f" ({examination.reduced})" if examination.reduced else ""
    print(f"runs {1e3 * examination.seconds:8.2f} ms {label}{reduced}", flush=True)
    for warning in examination.warnings:
        print(f"    warning: {warning}", flush=True)
    signature = signature_of(finding)
    if signature is not None and signature.refused:
        print(f"    no C signature: {signature.refused}", flush=True)


def _print_counts(findings: list[Finding], *, ran: bool) -> None:
    folders = Counter(f.path.parent.name for f in findings)
    for folder, count in folders.items():
        here = [f for f in findings if f.path.parent.name == folder]
        line = f"{folder or '.'}: {sum(not f.complaints for f in here)} of {count} read"
        print(line + (f", {sum(f.runs for f in here)} run" if ran else ""))
    read = sum(not f.complaints for f in findings)
    print(f"all: {read} of {len(findings)} read" + (f", {sum(f.runs for f in findings)} run" if ran else ""))
