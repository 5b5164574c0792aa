"""Control the process that holds torch and runs problems' code (see `trusted`) from the referee."""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from runners.errors import InfraFailure
from runners.harness.processes.preloading import TORCH
from runners.sandbox import PACKAGE, SandboxPolicy, command_of, spawn

# Problems are data: their code is executed from its text, and a folder that is read as a problem stays as it is.
_SHIPPED = re.compile(r"/problems/shipped/")


class Zygote:
    """Start a process with torch in a sandbox; `fork` asks for a child.

    `preloaded` names what was imported in the process from which it is forked itself (see `preloading`).
    """

    def __init__(self, policy: SandboxPolicy, preloaded: Sequence[str] = TORCH) -> None:
        _compile_once()
        self._socket, far = socket.socketpair()
        command = command_of("runners.harness.oracle.trusted", str(far.fileno()))
        try:
            self._process = spawn(command, policy, (far.fileno(),), preloaded=preloaded)
        except BaseException:
            self._socket.close()
            raise
        finally:
            far.close()

    @property
    def alive(self) -> bool:
        """Return False once the process has ended."""
        return self._process.alive

    def fork(self, channel_fd: int, memory_fd: int) -> None:
        """Ask for an oracle on that channel. Raises InfraFailure when the process is gone."""
        try:
            socket.send_fds(self._socket, [b"o"], [channel_fd, memory_fd])
        except OSError as error:
            raise InfraFailure(f"the process that holds torch is gone: {error}") from error

    def pause(self) -> None:
        """Pause the process, even while it imports."""
        self._process.pause()

    def resume(self) -> None:
        """Resume the paused process."""
        self._process.resume()

    def close(self) -> None:
        """End the process and its children."""
        self._socket.close()
        self._process.kill()
        self._process.wait(2.0)


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
