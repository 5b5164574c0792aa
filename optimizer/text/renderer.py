"""Ask the child process that renders hostile texts (`optimizer.text.rendering`), within limits of time and memory.

The web server answers from many threads of one process: a regular expression in one of them holds up all the others.
So texts are coloured and rendered elsewhere, and a text that takes too long is shown plain.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from runners.limited_child import ChildError, ExhaustedError, LimitedChild

# Processor seconds for one request; an ordinary kernel of 200 kB takes half a second.
MOST_CPU_S = 1.5
# On a busy machine that may take so long.
MOST_WALL_S = 15.0
# Threads wait this long for the child before they show a text plain.
MOST_WAIT_S = 5.0
# Requests that were given up are known by their digest, so that a page shown again costs nothing.
MOST_REMEMBERED = 4096


class RenderingError(RuntimeError):
    """Report a text that could not be rendered within the limits."""


class Renderer:
    """Render texts in one child process, and remember those that took too long."""

    def __init__(self) -> None:
        self.child = LimitedChild("optimizer.text.rendering", MOST_CPU_S, MOST_WALL_S, MOST_WAIT_S)
        self._given_up: dict[bytes, None] = {}

    def render(self, task: str, *arguments: Any) -> Any:
        """Return what a task of `optimizer.text.rendering` returns. Raises RenderingError."""
        digest = sha256(json.dumps([task, arguments]).encode()).digest()
        if digest in self._given_up:
            raise RenderingError("took too long before")
        try:
            return self.child.ask(task, *arguments)
        except ChildError as error:
            # A busy machine says nothing about the text, and a library's fault is found again in no time.
            if isinstance(error, ExhaustedError):
                self._give_up(digest)
            raise RenderingError(str(error)) from error

    def close(self) -> None:
        """End the child process."""
        self.child.close()

    def _give_up(self, digest: bytes) -> None:
        self._given_up[digest] = None
        if len(self._given_up) > MOST_REMEMBERED:
            self._given_up.pop(next(iter(self._given_up)))


RENDERER = Renderer()
