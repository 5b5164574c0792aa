"""Control the process that holds torch and runs problems' code (see `trusted`) from the referee."""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path

from runners.errors import InfraFailure
from runners.harness.processes.preloading import TORCH
from runners.sandbox import PACKAGE, Completed, Sandboxed, SandboxError, SandboxPolicy, command_of, spawn
from runners.sandbox.probe import allowed_level

# How long a process may take to end after it has closed its channel.
ENDING_S = 1.0
MOST_CHARACTERS = 1000
# Problems are data: their code is executed from its text, and a folder that is read as a problem stays as it is.
_SHIPPED = re.compile(r"/problems/shipped/")


class Zygote:
    """Start a process with torch in a sandbox at once, without waiting; `fork` asks for a child.

    `preloaded` names what its fork server has imported (see `preloading`). Raises SandboxError where no sandbox works.
    """

    def __init__(self, policy: SandboxPolicy, preloaded: Sequence[str] = TORCH) -> None:
        allowed_level()
        self._socket, far = socket.socketpair()
        self._starting: Future[Sandboxed] = Future()
        threading.Thread(target=self._start, args=(far, policy, preloaded), name="zygote", daemon=True).start()

    def _start(self, far: socket.socket, policy: SandboxPolicy, preloaded: Sequence[str]) -> None:
        try:
            with far:
                _compile_once()
                command = command_of("runners.harness.oracle.trusted", str(far.fileno()))
                process = spawn(command, policy, (far.fileno(),), preloaded=preloaded)
        except BaseException as error:
            self._starting.set_exception(error)
        else:
            self._starting.set_result(process)

    @property
    def alive(self) -> bool:
        """Return False once the process has ended or could not be started."""
        if not self._starting.done():
            return True
        return self._starting.exception() is None and self._starting.result().alive

    def why_ended(self) -> str:
        """Return how the process ended or why it did not start, or an empty text while it lives."""
        try:
            error = self._starting.exception(ENDING_S)
        except TimeoutError:
            return "its process is still starting"
        if error is not None:
            return f"its process did not start: {error}"
        try:
            completed = self._starting.result().wait(ENDING_S)
        except SandboxError as gone:
            return f"its process is gone: {gone}"
        return "" if completed is None else f"its process ended: {_ending(completed)}"

    def fork(self, channel_fd: int, memory_fd: int) -> None:
        """Ask for an oracle on that channel, which answers when the process has started. Raises InfraFailure when
        it is gone or could not be started."""
        try:
            socket.send_fds(self._socket, [b"o"], [channel_fd, memory_fd])
        except OSError as error:
            raise InfraFailure(f"the oracle could not be started: {self.why_ended() or error}") from error

    def pause(self) -> None:
        """Pause the process."""
        self._starting.result().pause()

    def resume(self) -> None:
        """Resume the paused process."""
        self._starting.result().resume()

    def close(self) -> None:
        """End the process and its children."""
        self._socket.close()
        if self._starting.exception() is None:
            process = self._starting.result()
            process.kill()
            process.wait(2.0)


def _ending(completed: Completed) -> str:
    """Return how a process ended in words, with the last line that it printed, cut where it is long."""
    if completed.killed_reason is not None:
        how = f"killed, {completed.killed_reason}"
    else:
        how = f"exit code {completed.exit_code}" if completed.signal is None else f"signal {completed.signal}"
    return ": ".join([how, *(line[:MOST_CHARACTERS] for line in completed.stderr.strip().splitlines()[-1:])])


@cache
def _compile_once() -> None:
    """Compile our modules and torch's once: in a sandbox nothing is written, so every process would do it again."""
    for folder in ("candidate", "harness", "problems"):
        compileall.compile_dir(PACKAGE / folder, rx=_SHIPPED, quiet=2)
    if any(map(_lacks_bytecode, ("torch", "sympy"))):
        # Isolated, so that a variable does not forbid to write what is compiled.
        for imports in ("import torch; torch.empty(1, device='meta') + 1", "import triton"):
            subprocess.run([sys.executable, "-I", "-c", imports], check=False, capture_output=True)


def _lacks_bytecode(package: str) -> bool:
    """Return whether a package was installed without bytecode, as some installers do, and there is leave to add it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    kept = Path(importlib.util.cache_from_source(spec.origin))
    return not kept.exists() and os.access(Path(spec.origin).parent, os.W_OK)
