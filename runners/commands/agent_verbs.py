"""Offer the verbs of coding agents on the command line: `problem`, `knowledge`, `diff`, `submit`, `best`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners.commands.reading import UsageError, read_tunables, target_name
from runners.verbs.service import MAX_WAIT_S, KernelNamed, Service
from runners.verbs.workbook import Expected, Notes


def add_problem_parser(subparsers: Any) -> None:
    """Declare `problem`."""
    parser = subparsers.add_parser("problem", help="print what a kernel has to compute, and how it is judged")
    parser.add_argument("problem", metavar="NAME|PATH", help="a shipped problem or a path below the current folder")
    _add_target(parser)
    parser.set_defaults(run=_command(_problem))


def add_knowledge_parser(subparsers: Any) -> None:
    """Declare `knowledge`."""
    parser = subparsers.add_parser("knowledge", help="search the notes on hardware and techniques")
    parser.add_argument("query", nargs="+")
    parser.add_argument("--limit", type=int, default=3)
    _add_target(parser)
    parser.set_defaults(run=_command(_knowledge))


def add_diff_parser(subparsers: Any) -> None:
    """Declare `diff`."""
    parser = subparsers.add_parser("diff", help="compare the texts of two kernels")
    parser.add_argument("before", type=Path, metavar="FILE")
    parser.add_argument("after", type=Path, metavar="FILE")
    _add_target(parser)
    parser.set_defaults(run=_command(_diff))


def add_submit_parser(subparsers: Any) -> None:
    """Declare `submit`."""
    parser = subparsers.add_parser("submit", help="evaluate a kernel in full and keep it with its verdict")
    parser.add_argument("file", type=Path, metavar="FILE", help=".cpp .hip .cu or .py, below the current folder")
    _add_problem(parser)
    parser.add_argument("--title", required=True, help="the change in a few words")
    parser.add_argument("--report", default="", help="what was done and why")
    parser.add_argument(
        "--parent", action="append", default=[], metavar="NAME", help="a kept kernel, the base first"
    )
    parser.add_argument("--expected", default="", help="the hypothesis, in one sentence")
    parser.add_argument("--tunable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--flags", default="", help="compiler flags from the allow-list, in one string")
    parser.set_defaults(run=_command(_submit))


def add_best_parser(subparsers: Any) -> None:
    """Declare `best`."""
    parser = subparsers.add_parser("best", help="print the best kernel that was submitted here, with its verdict")
    _add_problem(parser)
    parser.set_defaults(run=_command(_best))


def _problem(service: Service, arguments: argparse.Namespace) -> str:
    return json.dumps(service.read_problem(arguments.problem, arguments.target), indent=1)


def _knowledge(service: Service, arguments: argparse.Namespace) -> str:
    pages = service.search_knowledge(" ".join(arguments.query), arguments.target, arguments.limit)
    return "\n\n".join(page["text"] for page in pages) or "Nothing was found."


def _diff(service: Service, arguments: argparse.Namespace) -> str:
    return service.diff(KernelNamed(str(arguments.before)), KernelNamed(str(arguments.after)))


def _submit(service: Service, arguments: argparse.Namespace) -> str:
    tunables, flags = read_tunables(arguments.tunable), arguments.flags.split()
    expected = Expected(arguments.expected) if arguments.expected else None
    notes = Notes(arguments.title, arguments.report, arguments.parent, expected, tunables, flags)
    kernel = KernelNamed(str(arguments.file), tunables=tunables, flags=tuple(flags))
    found = service.submit(kernel, arguments.problem, notes, target=arguments.target, wait_s=MAX_WAIT_S)
    while found["state"] == "running":
        found = service.verdict(found["evaluation"], MAX_WAIT_S)
    return json.dumps(found, indent=1)


def _best(service: Service, arguments: argparse.Namespace) -> str:
    return json.dumps(service.best(arguments.problem, arguments.target), indent=1)


def _add_problem(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", required=True, metavar="NAME|PATH", help="a shipped problem or a path")
    _add_target(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", type=target_name, metavar="NAME", help="gfx942, H100, cpu …")


def _command(verb: Callable[[Service, argparse.Namespace], str]) -> Callable[[argparse.Namespace], int]:
    """Return a command that prints the verb's answer: 0, or 2 with the reason where it refuses."""

    def run(arguments: argparse.Namespace) -> int:
        service = Service(Path())
        try:
            print(verb(service, arguments))
        except UsageError as error:
            print(f"python -m runners {arguments.command}: {error}", file=sys.stderr)
            return 2
        finally:
            service.close()
        return 0

    return run
