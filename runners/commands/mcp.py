"""Serve coding agents on stdin and stdout, without the web application: `python -m runners mcp`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from runners.commands.reading import target_name


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("mcp", help="serve a coding agent by the Model Context Protocol (stdio)")
    parser.add_argument(
        "--folder", type=Path, default=Path(), metavar="DIR", help="where the agent's files are (default: here)"
    )
    parser.add_argument("--target", default="cpu", type=target_name, metavar="NAME", help="this machine's device")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stdin closes. Return 2 if the folder or the `mcp` package is missing."""
    if not arguments.folder.is_dir():
        print(f"python -m runners mcp: {arguments.folder}: no such folder", file=sys.stderr)
        return 2
    try:
        # Imported here: machines that only measure have torch and nothing else.
        from runners.mcp.server import server_of
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"mcp", "anyio", "pydantic"}:
            raise
        print("python -m runners mcp: install the package mcp (see requirements.txt)", file=sys.stderr)
        return 2
    from runners.verbs.service import Service

    service = Service(arguments.folder, arguments.target)
    try:
        server_of(service).run("stdio")
    finally:
        service.close()
    return 0
