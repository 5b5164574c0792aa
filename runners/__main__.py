"""Run the commands that need neither database nor web server: `python -m runners COMMAND`.

The exit code is 0 if there is a verdict, 1 if the harness itself failed, 2 for wrong usage. `gate` and `verify` have
codes of their own from 3 up, so that scripts can tell a bad kernel from a bad machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from runners.commands import (
    agent_verbs,
    build,
    capture,
    doctor,
    endtoend,
    evaluate,
    export,
    gate,
    keys,
    mcp,
    probe,
    receipt,
    work_site,
    work_spool,
)
from runners.commands.pipes import until_the_reader_leaves
from runners.problems import commands as problems

COMMANDS: dict[str, Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None]] = {
    "evaluate": evaluate.add_parser,
    "build": build.add_parser,
    "capture": capture.add_parser,
    "endtoend": endtoend.add_parser,
    "export": export.add_parser,
    "probe": probe.add_parser,
    "gate": gate.add_parser,
    "receipt": receipt.add_parser,
    "verify": receipt.add_verify_parser,
    "receipt-key": receipt.add_key_parser,
    "keys": keys.add_parser,
    "mcp": mcp.add_parser,
    "problem": agent_verbs.add_problem_parser,
    "knowledge": agent_verbs.add_knowledge_parser,
    "diff": agent_verbs.add_diff_parser,
    "submit": agent_verbs.add_submit_parser,
    "best": agent_verbs.add_best_parser,
    "doctor": doctor.add_parser,
    "problems": problems.add_parser,
    "work-spool": work_spool.add_parser,
    "work-site": work_site.add_parser,
}

# What comes after `--` belongs to the program that these commands run.
RUN_PROGRAMS = ("capture", "endtoend")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog=_program(), description="Build, check and time kernels.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in COMMANDS.values():
        add(commands)
    words, own = _parted(list(sys.argv[1:] if argv is None else argv))
    if not words:
        parser.print_help()
        return 2
    arguments = parser.parse_args(words)
    arguments.arguments = own
    with until_the_reader_leaves():
        code: int = arguments.run(arguments)
    return code


def _program() -> str:
    """Return what the person typed before COMMAND, for help texts."""
    return "kernelsci" if Path(sys.argv[0]).name == "kernelsci" else "python -m runners"


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the command's own words, and those after `--`, which belong to the program that it runs.

    argparse would give the latter to whichever positional argument comes first.
    """
    at = words.index("--") if "--" in words and words[0] in RUN_PROGRAMS else len(words)
    return words[:at], words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
