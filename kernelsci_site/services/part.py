"""Describe one supervised process: how it is started, checked for readiness, and stopped with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).with_name("launcher.py")
POLL_S = 0.02


class PartFailedError(RuntimeError):
    """Report that a part could not be prepared, died at once, or did not answer in time. The message is for the
    reader.
    """


@dataclass(frozen=True)
class Part:
    """Describe what to run and how.

    `stop_signal` requests an orderly end; `abandon_signal` is what the kernel sends when the supervisor is killed. A
    server is stopped after the parts that depend on it. Output of a `quiet` part goes to its log, and to the console
    only when it dies. `prepare` runs before each start, `is_ready` is polled after it; both may raise
    `PartFailedError`.
    """

    name: str
    command: Sequence[str]
    stop_signal: signal.Signals = signal.SIGTERM
    abandon_signal: signal.Signals = signal.SIGTERM
    stop_within_s: float = 10.0
    # One that dies is noticed at once. On a busy or emulated machine a live one took more than half a minute.
    ready_within_s: float = 120.0
    drop_privileges: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_fds: tuple[int, ...] = ()
    folder: Path | None = None
    quiet: bool = False
    is_server: bool = False
    prepare: Callable[[], None] = lambda: None
    is_ready: Callable[[], bool] = lambda: True

    def launched(self) -> list[str]:
        """Return the command behind the launcher that ties it to this process."""
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), "--parent", str(os.getpid())]
        launcher += ["--signal", str(int(self.abandon_signal))]
        if self.drop_privileges:
            launcher += ["--drop-privileges", self.drop_privileges]
        return [*launcher, "--", *self.command]

    def start(self, output: int | IO[bytes] = subprocess.PIPE) -> Child:
        """Prepare and start the part in its own session, so that a Ctrl-C in the terminal reaches only the
        supervisor.
        """
        self.prepare()
        process = subprocess.Popen(
            self.launched(),
            # A part that reads from the terminal would take the keys of the supervisor.
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
            pass_fds=self.keep_fds,
            cwd=self.folder,
            start_new_session=True,
        )
        return Child(self, process)


@dataclass
class Child:
    """Hold a started part. Its process group id is its process id."""

    part: Part
    process: subprocess.Popen[bytes]

    @property
    def is_alive(self) -> bool:
        """Return whether the part's first process is running."""
        return self.process.poll() is None

    def wait_until_ready(self) -> None:
        """Return once the part answers. Raises `PartFailedError` when it dies or does not answer in time."""
        until = time.monotonic() + self.part.ready_within_s
        while not self.part.is_ready():
            if not self.is_alive:
                raise PartFailedError(f"{self.part.name} ended with {self.ending}")
            if time.monotonic() > until:
                raise PartFailedError(f"{self.part.name} did not answer within {self.part.ready_within_s:.0f} s")
            time.sleep(POLL_S)

    @property
    def ending(self) -> str:
        """Return for people how it ended: `exit status 1` or `signal SIGKILL`."""
        status = self.process.poll()
        if status is None:
            return "nothing yet"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def ask_to_stop(self) -> None:
        """Send the stop signal once, without waiting."""
        if self.is_alive:
            self.process.send_signal(self.part.stop_signal)

    def finish(self) -> None:
        """Wait for the orderly end, then kill what is left of the process group."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(self.part.stop_within_s)
        self.sweep_up()

    def sweep_up(self) -> None:
        """Kill the rest of the process group: pool processes of a dead worker, backends of a dead postmaster."""
        with suppress(ProcessLookupError):
            # The group is that of the part's own session, so nothing else can be in it.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Stop the part in an orderly way, and leave no orphans."""
        self.ask_to_stop()
        self.finish()
