"""Install packages, and show how far it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from kernelsci.install.tools import Tool

# What pip and uv say about one package: `Collecting x`, `Downloading x (20 MB)`, `Installing collected packages: …`.
STEP = re.compile(r"\s*(Collecting|Downloading|Installing|Resolved|Prepared|Installed|Building)\b.*")
LARGE = re.compile(r"\b(\d{2,}(\.\d+)? ?Mi?B|\d(\.\d+)? ?Gi?B)\b")
TOLD_OF_A_FAILURE = 15


class InstallFailedError(RuntimeError):
    """Report that packages could not be installed. The message is for the reader."""


class ToolFailedError(InstallFailedError):
    """Report that the tool failed. The message ends with what it said last."""


def install(tool: Tool, arguments: Sequence[str], log: Path) -> None:
    """Run the installing command, its words in `log`, its steps on the terminal. Raises `ToolFailedError`."""
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            [*tool.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", bufsize=1, env=tool.environment or None,
        )  # fmt: skip
        said = Progress(sys.stdout).follow(process.stdout or [], file)
        process.wait()
    if process.returncode != 0:
        raise ToolFailedError("\n".join(said[-TOLD_OF_A_FAILURE:]))


class Progress:
    """Show steps: all of them on one line of a terminal, elsewhere only those that take long, a line each."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.packages = 0

    def follow(self, lines: Iterable[str], log: IO[str]) -> list[str]:
        """Show what a tool says until it ends, and return its lines."""
        said = []
        for line in lines:
            log.write(line)
            said.append(line.rstrip())
            self.show(line.strip())
        self._write("\r\x1b[K" if self.is_terminal else "")
        return said

    def show(self, line: str) -> None:
        """Show one line of the tool, if it is a step."""
        if not STEP.match(line):
            return
        self.packages += line.startswith("Collecting")
        if self.is_terminal:
            columns = shutil.get_terminal_size().columns
            self._write("\r\x1b[K" + f"  {self.packages or ''} {line}"[: columns - 1])
        elif LARGE.search(line) or line.startswith(("Installing", "Resolved", "Prepared", "Installed")):
            self._write(f"  {line if len(line) < 100 else line[:99] + '…'}\n")

    def _write(self, text: str) -> None:
        # A reader that went away (`make start | head`) must not end an installation half-way.
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            self.stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - lives as long as this
