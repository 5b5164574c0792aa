"""Ask the child process that renders hostile texts (`optimizer.text.rendering`), within limits of time and memory.

The web server answers from many threads of one process: a regular expression in one of them holds up all the others.
So texts are coloured and rendered elsewhere, and a text that takes too long is shown plain.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast

# The child limits its processor time. On a busy machine that may take so long.
MOST_WALL_S = 15.0
# Threads wait this long for the child before they show a text plain.
MOST_WAIT_S = 5.0
# Requests that were given up are known by their digest, so that a page shown again costs nothing.
MOST_REMEMBERED = 4096
_ROOT = Path(__file__).resolve().parents[2]


class RenderingError(RuntimeError):
    """Report a text that could not be rendered within the limits."""


class Renderer:
    """Own one child process, started by the first request and again after a text that ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._given_up: dict[bytes, None] = {}

    def render(self, task: str, *arguments: Any) -> Any:
        """Return what a task of `optimizer.text.rendering` returns. Raises RenderingError."""
        request = json.dumps([task, arguments]).encode() + b"\n"
        digest = sha256(request).digest()
        if digest in self._given_up:
            raise RenderingError("took too long before")
        if not self._lock.acquire(timeout=MOST_WAIT_S):
            raise RenderingError("other texts are being rendered")
        try:
            answer = self._asked(request)
        except OSError as error:
            self.close()
            self._give_up(digest)
            raise RenderingError("took too long") from error
        finally:
            self._lock.release()
        if "done" not in answer:
            raise RenderingError(answer["failed"])
        return answer["done"]

    def close(self) -> None:
        """End the child process, if this process started one."""
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _asked(self, request: bytes) -> dict[str, Any]:
        """Send a request and return the answer. Raises OSError where none comes."""
        child = self._started()
        pipes = cast(tuple[IO[bytes], IO[bytes]], (child.stdin, child.stdout))
        pipes[0].write(request)
        pipes[0].flush()
        answer = b"".join(_line(pipes[1].fileno(), time.monotonic() + MOST_WALL_S))
        found: dict[str, Any] = json.loads(answer)
        return found

    def _started(self) -> subprocess.Popen[bytes]:
        # After a fork, two processes would read each other's answers from the same pipe.
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self.close()
            self._child, self._owner = _started_child(), os.getpid()
        return self._child

    def _give_up(self, digest: bytes) -> None:
        self._given_up[digest] = None
        if len(self._given_up) > MOST_REMEMBERED:
            self._given_up.pop(next(iter(self._given_up)))


def _started_child() -> subprocess.Popen[bytes]:
    # None of the site's variables: the child reads hostile texts and needs no secret.
    environment = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "optimizer.text.rendering"]
    return subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def _line(descriptor: int, deadline: float) -> list[bytes]:
    """Return the pieces of the next line. Raises OSError at its end and at the deadline."""
    pieces: list[bytes] = []
    # `poll` and not `select`, whose descriptors end at 1,024: a server with many sockets has more.
    answered = select.poll()
    answered.register(descriptor, select.POLLIN)
    while not pieces or not pieces[-1].endswith(b"\n"):
        ready = answered.poll(max(0.0, deadline - time.monotonic()) * 1000)
        piece = os.read(descriptor, 1 << 20) if ready else b""
        if not piece:
            raise OSError("the child ended or took too long")
        pieces.append(piece)
    return pieces


RENDERER = Renderer()
