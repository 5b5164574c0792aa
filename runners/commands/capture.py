"""Write the costly parts of a PyTorch program as problems: `python -m runners capture script.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from runners.problems.base import ProblemError
from runners.program import ProgramError, script_runner


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "capture", help="run a PyTorch program, rank its calls, and write the costly ones as problems"
    )
    parser.add_argument("script", type=Path, help="its own arguments come last, after --")
    parser.add_argument("--out", type=Path, default=Path("captured"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--call", default="", metavar="FUNCTION", help="run this function of the script, three times"
    )
    parser.add_argument("--top", type=int, default=2, metavar="N", help="how many problems (default: %(default)s)")
    parser.add_argument(
        "--select", action="append", default=[], metavar="NAME", help="a row of the table by number or name"
    )
    parser.add_argument(
        "--keep-inputs", action="store_true", help="save small inputs instead of their distribution"
    )
    parser.add_argument("--list", action="store_true", help="only print the table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, print the ranking and write the problems. Return 0, 1 if the program fails, else 2."""
    # torch is imported when it is needed: the other commands of this program do without.
    from runners.capture.drafting import CaptureError
    from runners.capture.session import capture

    try:
        program = script_runner(arguments.script, arguments.arguments, arguments.call)
        if arguments.call:
            program()  # the first call of a process is longer: memory, threads, kernels that are chosen or compiled
        with capture() as captured:
            for _ in range(3 if arguments.call else 1):
                program()
        captured.program = arguments.script.name
        print(captured.table())
        if captured.left_out:
            print(f"{captured.left_out} calls had ever new shapes and were not recorded")
        if not arguments.list:
            captured.write(arguments.out, arguments.top, arguments.select)
    except (CaptureError, ProblemError, ProgramError, FileExistsError) as error:
        print(f"python -m runners capture: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # the program's own; its traceback is what its author needs
        import traceback

        traceback.print_exc()
        print(f"python -m runners capture: the program failed: {type(error).__name__}", file=sys.stderr)
        return 1
    for line in captured.refused:
        print(f"left out: {line}")
    for one in captured.written:
        print(f"written: {one.folder} ({one.row.share:.1%} of the time, {one.row.count} calls)")
    return 0
