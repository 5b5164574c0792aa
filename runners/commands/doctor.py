"""Tell what this machine can build, time and confine: `python -m runners doctor`."""

from __future__ import annotations

import argparse
import json

from runners.doctor import as_json, as_text, facts


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("doctor", help="say what this machine can do and what to install for the rest")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the facts. Return 1 if something is missing that every kernel needs."""
    found = facts()
    answer = as_json(found)
    print(json.dumps(answer, indent=2) if arguments.json else as_text(found))
    return 0 if answer["ready"] else 1
