"""Export a kernel as a package or in the layout of another tool: `python -m runners export`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from runners.commands.reading import UsageError, read_problem, read_source, read_tunables
from runners.export.declaration import ExportError
from runners.export.formats import FORMATS, write
from runners.export.package import Exported, exported
from runners.export.patch import script_patch
from runners.export.provenance import Origin
from runners.job import JobResult
from runners.problems.base import ProblemError
from runners.targets import UnknownTarget, canonical
from runners.wire import WireError, loads


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("export", help="make a package, or a file for another tool, of a kernel")
    parser.add_argument("--problem", required=True, metavar="NAME|PATH", help="a shipped problem or a path")
    parser.add_argument("--candidate", required=True, type=Path, metavar="FILE", help=".cpp .hip .cu or .py")
    parser.add_argument("--target", default="cpu", metavar="NAME", help="where it was measured (default: cpu)")
    parser.add_argument(
        "--as", dest="form", default="package", choices=[*FORMATS, "patch"], help="default: package"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="an empty or new folder; a patch is printed")
    parser.add_argument("--script", type=Path, metavar="FILE", help="the captured script; for --as patch")
    parser.add_argument("--result", type=Path, metavar="FILE", help="what evaluate --json printed of this kernel")
    parser.add_argument("--tunable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--flags", default="", help="compiler flags from the allow-list, in one string")
    parser.add_argument("--licence", default="", help="SPDX expression, such as Apache-2.0")
    parser.add_argument("--author", default="", help="who made the kernel")
    parser.add_argument("--version", default="0.1.0", help="of the package (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the files and print their paths. Return 0 if that was done, 2 if it cannot be."""
    try:
        kernel = _kernel(arguments)
        if arguments.form == "patch":
            print(_patch(kernel, arguments.script), end="")
            return 0
        if arguments.out is None:
            raise UsageError("name a folder: --out FOLDER")
        for path in write(FORMATS[arguments.form].files(kernel), arguments.out):
            print(path)
    except (UsageError, ProblemError, ExportError, UnknownTarget, OSError) as error:
        print(f"python -m runners export: {error}", file=sys.stderr)
        return 2
    return 0


def _kernel(arguments: argparse.Namespace) -> Exported:
    source = dataclasses.replace(
        read_source(arguments.candidate),
        tunables=read_tunables(arguments.tunable),
        flags=tuple(arguments.flags.split()),
    )
    origin = Origin(arguments.author, arguments.licence, arguments.version)
    result = _result(arguments.result) if arguments.result else None
    return exported(read_problem(arguments.problem), source, canonical(arguments.target), result, origin)


def _result(path: Path) -> JobResult:
    try:
        return loads(JobResult, path.read_text())
    except (OSError, UnicodeDecodeError, WireError) as error:
        raise UsageError(f"{path}: not what evaluate --json prints: {error}") from error


def _patch(kernel: Exported, script: Path | None) -> str:
    if script is None:
        raise UsageError("name the script that was captured: --script FILE")
    try:
        return script_patch(kernel, script.read_text(), script.name)
    except UnicodeDecodeError as error:
        raise UsageError(f"{script}: not UTF-8 text") from error
