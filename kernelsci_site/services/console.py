"""Print the output of all parts: lines prefixed with the part's name, and a status line at the end."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

COLOURS = (36, 35, 34, 33, 32, 96, 95, 94)  # ANSI foregrounds that read on light and dark
RED, DIM = 31, 2
CLEAR_LINE = "\r\x1b[2K"
# Parts repeat what models, compilers and kernels said: nothing of it may steer the terminal.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Console:
    """Write to `stream`, in colour and with a status line when that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty()
        self.in_colour = self.is_terminal and "NO_COLOR" not in os.environ
        self.width = 8
        self._names: list[str] = []
        self._status = ""

    def expect(self, names: Iterable[str]) -> None:
        """Announce the parts' names, for an aligned column and a colour each."""
        self._names = list(names)
        self.width = max(self.width, *(len(name) for name in self._names))

    def part(self, name: str, line: str) -> None:
        """Print one line of a part, without anything that would control the terminal."""
        self._print(f"{self._tag(name)} {CONTROL.sub('', line)}")

    def say(self, line: str = "") -> None:
        """Print one line of our own."""
        self._print(line)

    def warn(self, line: str) -> None:
        """Print one line of our own that needs a person's attention."""
        self._print(self._paint(line, RED))

    def status(self, text: str) -> None:
        """Replace the status line, which exists only on a terminal."""
        if text == self._status:
            return
        self._status = text
        if self.is_terminal:
            self._draw_status()

    def _print(self, line: str) -> None:
        if not self.is_terminal:
            self._write(line + "\n")
            return
        # Clear the status line, print above it, and draw it again below.
        self._write(f"{CLEAR_LINE}{line}\n")
        self._draw_status()

    def _draw_status(self) -> None:
        columns = shutil.get_terminal_size().columns
        self._write(CLEAR_LINE + self._paint(self._status[: columns - 1], DIM))

    def _write(self, text: str) -> None:
        """Write to the stream. A reader that went away (`up | head`) must not take the site down."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            return

    def _tag(self, name: str) -> str:
        number = self._names.index(name) if name in self._names else 0
        return self._paint(f"{name:<{self.width}} │", COLOURS[number % len(COLOURS)])

    def _paint(self, text: str, colour: int) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.in_colour and text else text
