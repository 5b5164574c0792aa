"""Control the trusted process that holds torch (see `trusted`) from the referee."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from runners.errors import InfraFailure

ROOT = Path(__file__).resolve().parents[3]


class Zygote:
    """Start importing torch at once, without waiting; `fork` asks for a child."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, far = socket.socketpair()
        # Nothing else of the environment: it may hold keys, and references are code of others.
        base = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "runners.harness.oracle.trusted", str(far.fileno())],
            env={**base, "PYTHONPATH": str(ROOT), **environment},
            pass_fds=(far.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        far.close()

    @property
    def alive(self) -> bool:
        """Return False once the process has ended."""
        return self._process.poll() is None

    def fork(self, channel_fd: int, memory_fd: int) -> None:
        """Ask for an oracle on that channel. Raises InfraFailure when the process is gone."""
        try:
            socket.send_fds(self._socket, [b"o"], [channel_fd, memory_fd])
        except OSError as error:
            raise InfraFailure(f"the process that holds torch is gone: {error}") from error

    def close(self) -> None:
        """End the process; its children end when their channels close."""
        self._socket.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
