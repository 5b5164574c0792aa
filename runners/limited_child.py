"""Have hostile texts read in a child process with limits of processor time and memory.

A regular expression or parser that runs too long can only be stopped by ending its process, and in a server it holds up
all other threads meanwhile. The child's module calls `serve`; its parent owns a `LimitedChild`. Requests and answers
are lines of JSON. Standard library only.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

_ROOT = Path(__file__).resolve().parents[1]
MOST_MEMORY_BYTES = 1 << 30
# A child that is through is reaped at once; only one that hangs in the kernel takes longer.
_ENDS_WITHIN_S = 5.0


class ChildError(RuntimeError):
    """Report a request without a result."""


class ExhaustedError(ChildError):
    """Report a request that took more processor time or memory than it may have, or that ended the process."""


class FailedError(ChildError):
    """Report the exception of a task, by the name of its class and its message."""


class UnansweredError(ChildError):
    """Report a fault of the machine, which says nothing about the request: too busy, or a file or memory is missing."""


class LimitedChild:
    """Own a child process, started by the first request and again after a request that ended it.

    `most_cpu_s` limits the processor time of a request, `most_wall_s` the time until its answer, `most_wait_s` the time
    in which other threads' requests must be through. Ask from any thread and after any fork.
    """

    def __init__(self, module: str, most_cpu_s: float, most_wall_s: float, most_wait_s: float) -> None:
        self._module, self._most_cpu_s = module, most_cpu_s
        self._most_wall_s, self._most_wait_s = most_wall_s, most_wait_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int | None:
        """Return the process that serves, or None where none was started."""
        return self._process.pid if self._process is not None else None

    def ask(self, task: str, *arguments: Any) -> Any:
        """Return what a task of the module returns for these arguments. Raises ChildError."""
        request = json.dumps([task, arguments, self._most_cpu_s]).encode() + b"\n"
        if not self._lock.acquire(timeout=self._most_wait_s):
            raise UnansweredError("other requests took too long")
        try:
            answer = self._asked(request)
        finally:
            self._lock.release()
        if "done" in answer:
            return answer["done"]
        if answer["machine"]:
            raise UnansweredError(answer["failed"])
        raise FailedError(answer["failed"])

    def close(self) -> None:
        """End the child process, if this process started one."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _asked(self, request: bytes) -> dict[str, Any]:
        process = self._started()
        pipes = cast(tuple[IO[bytes], IO[bytes]], (process.stdin, process.stdout))
        try:
            pipes[0].write(request)
            pipes[0].flush()
            line = _line(pipes[1].fileno(), time.monotonic() + self._most_wall_s)
        except TimeoutError as error:
            self.close()
            raise UnansweredError("the machine is too busy") from error
        except OSError as error:
            raise self._ended(process) from error
        found: dict[str, Any] = json.loads(line)
        return found

    def _ended(self, process: subprocess.Popen[bytes]) -> ChildError:
        """Return why the process has ended without an answer."""
        try:
            code = process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self.close()
        # Nothing of ours sends SIGKILL here: the kernel's choice when the machine has no memory left, or a person's.
        if code == -signal.SIGKILL:
            return UnansweredError("the reading process was killed")
        if code == -signal.SIGPROF:
            return ExhaustedError(f"it takes more than {self._most_cpu_s:g} s of processor time")
        return ExhaustedError(f"it ends the reading process (exit code {code})")

    def _started(self) -> subprocess.Popen[bytes]:
        # After a fork, two processes would read each other's answers from the same pipe.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._process, self._owner = _started_process(self._module), os.getpid()
        return self._process


def _started_process(module: str) -> subprocess.Popen[bytes]:
    # None of the parent's other variables: the child reads hostile texts and needs no secret.
    environment = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", module]
    return subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def _line(descriptor: int, deadline: float) -> bytes:
    """Return the next line. Raises TimeoutError at the deadline, and another OSError if the child has ended."""
    pieces: list[bytes] = []
    # `poll` and not `select`, whose descriptors end at 1,024: a server with many sockets has more.
    answered = select.poll()
    answered.register(descriptor, select.POLLIN)
    while not pieces or not pieces[-1].endswith(b"\n"):
        if not answered.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError("no answer in time")
        piece = os.read(descriptor, 1 << 20)
        if not piece:
            raise BrokenPipeError("the child has ended")
        pieces.append(piece)
    return b"".join(pieces)


def serve(tasks: Mapping[str, Callable[..., Any]], most_memory_bytes: int = MOST_MEMORY_BYTES) -> None:
    """Answer requests from stdin on stdout until stdin is closed. The kernel ends a process that takes too long."""
    resource.setrlimit(resource.RLIMIT_AS, (most_memory_bytes, most_memory_bytes))
    # A request that ends the process leaves no copy of a text behind.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(tasks, *json.loads(line))) + "\n")
        sys.stdout.flush()


def _answer(
    tasks: Mapping[str, Callable[..., Any]], task: str, arguments: list[Any], most_cpu_s: float
) -> dict[str, Any]:
    # SIGPROF's default action ends the process, even inside a regular expression, which no Python code interrupts.
    signal.setitimer(signal.ITIMER_PROF, most_cpu_s)
    try:
        return {"done": tasks[task](*arguments)}
    except Exception as error:
        # A fault of one request is told to whoever asked; the next one is served.
        failed = f"{type(error).__name__}: {error}"[:1000]
        return {"failed": failed, "machine": isinstance(error, OSError)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
