"""Keep parts running: start them, show their output, restart dead ones, and leave nothing behind."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from kernelsci_site.services.console import Console
from kernelsci_site.services.logs import RotatingLog
from kernelsci_site.services.part import Child, Part, PartFailedError

PR_SET_CHILD_SUBREAPER = 36
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK_S = 0.1
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0
SHOWN_AT_DEATH = 12
CHUNK_BYTES = 65_536
LONGEST_LINE_BYTES = 16_384


class StopRequestedError(Exception):
    """Report that a stop was requested while parts were still being started."""


class Keeper:
    """Track one part over all its restarts."""

    def __init__(self, part: Part, log: RotatingLog) -> None:
        self.part = part
        self.log = log
        self.child: Child | None = None
        self.started_at = 0.0
        self.start_again_at = 0.0
        self.deaths_in_a_row = 0
        self.tail: deque[str] = deque(maxlen=SHOWN_AT_DEATH)
        self.unfinished_line = b""

    @property
    def is_alive(self) -> bool:
        """Return whether its process is running."""
        return self.child is not None and self.child.is_alive

    def pause_after_death_s(self) -> float:
        """Return the pause before the next start: doubling from 1 s to 30 s, reset after a steady minute."""
        if time.monotonic() - self.started_at > STEADY_AFTER_S:
            self.deaths_in_a_row = 0
        self.deaths_in_a_row += 1
        return float(min(FIRST_PAUSE_S * 2 ** (self.deaths_in_a_row - 1), LONGEST_PAUSE_S))

    def lines(self, chunk: bytes) -> list[str]:
        """Return the lines completed by `chunk`; a line that never ends is cut."""
        *complete, rest = (self.unfinished_line + chunk).split(b"\n")
        # A part that never writes a line end would fill the memory.
        if len(rest) > LONGEST_LINE_BYTES:
            complete, rest = [*complete, rest], b""
        self.unfinished_line = rest
        return [line.decode(errors="replace") for line in complete]


class Supervisor:
    """Supervise all parts of one installation, in a process of its own: unknown children are killed.

    It uses one thread only, because the kernel sends the parent-death signal when the thread that started a part
    ends.
    """

    def __init__(self, console: Console, log_folder: Path) -> None:
        self.console = console
        self.log_folder = log_folder
        self.keepers: list[Keeper] = []
        self.stop_requests = 0
        self._selector = selectors.DefaultSelector()
        # Orphans of a part are then re-parented to this process instead of to init, where nobody would end them.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)

    @contextmanager
    def listening_for_signals(self) -> Iterator[None]:
        """Handle Ctrl-C, SIGTERM and a closed terminal as a request for an orderly end; a second one hurries it."""

        def note(_number: int, _frame: FrameType | None) -> None:
            self.stop_requests += 1

        before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, part: Part) -> Keeper:
        """Start a part and keep it running from now on."""
        keeper = Keeper(part, RotatingLog(self.log_folder, part.name))
        self.keepers.append(keeper)
        self._start(keeper)
        return keeper

    def wait_until_ready(self, keepers: Iterable[Keeper]) -> None:
        """Return once all answer. Raises `PartFailedError`, or `StopRequestedError` when a stop is requested
        meanwhile.
        """
        for keeper in keepers:
            until = time.monotonic() + keeper.part.ready_within_s
            while not keeper.part.is_ready():
                self.pump(0.02)
                self.check_not_stopped()
                self._check_starting(keeper, until)

    def check_not_stopped(self) -> None:
        """Raise `StopRequestedError` when a stop was requested."""
        if self.stop_requests:
            raise StopRequestedError

    def run(self, address: str) -> None:
        """Keep everything alive until a stop is requested."""
        while not self.stop_requests:
            self.pump(TICK_S)
            self.tend()
            self.console.status(self.status(address))

    def tend(self) -> None:
        """Record dead parts, restart those whose pause is over, and end orphans."""
        for keeper in self.keepers:
            if keeper.child is not None and not keeper.is_alive:
                self._bury(keeper)
            elif keeper.child is None and time.monotonic() >= keeper.start_again_at:
                self._start_again(keeper)
        self.end_orphans()

    def status(self, address: str) -> str:
        """Return one line: every part with a mark, the address, and how to stop."""
        marks = "  ".join(f"{'●' if keeper.is_alive else '○'} {keeper.part.name}" for keeper in self.keepers)
        return f"{marks}   {address}   Ctrl-C stops"

    def pump(self, timeout_s: float) -> None:
        """Pass on what the parts wrote, waiting up to `timeout_s` for something."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        for key, _events in self._selector.select(timeout_s):
            self._read(key.data, key.fd)

    def stop(self) -> None:
        """Stop workers and pages first, then the servers they depend on; kill what does not end; leave no orphan."""
        self.console.status("stopping …")
        servers = [keeper for keeper in self.keepers if keeper.part.is_server]
        for wave in ([k for k in self.keepers if k not in servers], servers):
            self._stop_wave(wave)
        self.end_orphans()
        for keeper in self.keepers:
            keeper.log.close()
        self.console.status("")

    def end_orphans(self) -> None:
        """Kill and reap the orphans of dead parts, which this process inherits as a subreaper."""
        ours = {keeper.child.process.pid for keeper in self.keepers if keeper.child}
        for pid in _children() - ours:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _stop_wave(self, keepers: list[Keeper]) -> None:
        alive = [keeper for keeper in keepers if keeper.child]
        # A further request during the wait ends it early.
        hurried = self.stop_requests
        for keeper in alive:
            _child(keeper).ask_to_stop()
        until = time.monotonic() + max([keeper.part.stop_within_s for keeper in alive], default=0.0)
        # Keep reading while waiting: a part that cannot write its last lines would never end.
        while any(k.is_alive for k in alive) and time.monotonic() < until and self.stop_requests <= hurried:
            self.pump(0.02)
        for keeper in alive:
            _child(keeper).sweep_up()
            self._forget(keeper)

    def _start(self, keeper: Keeper) -> None:
        keeper.child = keeper.part.start()
        keeper.started_at = time.monotonic()
        output = keeper.child.process.stdout
        if output is not None:
            # One silent part must not block reading from the others.
            os.set_blocking(output.fileno(), False)
            self._selector.register(output, selectors.EVENT_READ, keeper)

    def _start_again(self, keeper: Keeper) -> None:
        """Restart a part; one that cannot even be prepared counts as having died again."""
        try:
            self._start(keeper)
        except (PartFailedError, OSError) as error:
            self._schedule(keeper, str(error))
        else:
            self.console.say(f"{keeper.part.name} started again")

    def _bury(self, keeper: Keeper) -> None:
        child = _child(keeper)
        child.sweep_up()
        ending = child.ending
        self._forget(keeper)
        if keeper.part.quiet:
            for line in keeper.tail:
                self.console.part(keeper.part.name, line)
        self._schedule(keeper, ending)

    def _schedule(self, keeper: Keeper, reason: str) -> None:
        pause_s = keeper.pause_after_death_s()
        keeper.start_again_at = time.monotonic() + pause_s
        self.console.warn(f"{keeper.part.name} ended with {reason}; next start in {pause_s:.0f} s")
        self.console.say(f"  its log: {keeper.log.path}")

    def _forget(self, keeper: Keeper) -> None:
        """Read what is left in the pipe and close it."""
        output = _child(keeper).process.stdout
        if output is not None and not output.closed:
            self._read(keeper, output.fileno())
            with suppress(KeyError):
                self._selector.unregister(output)
            output.close()
        keeper.child = None

    def _read(self, keeper: Keeper, fd: int) -> None:
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            with suppress(KeyError):
                self._selector.unregister(fd)
            return
        keeper.log.write(chunk)
        for line in keeper.lines(chunk):
            keeper.tail.append(line)
            if not keeper.part.quiet:
                self.console.part(keeper.part.name, line)

    def _check_starting(self, keeper: Keeper, until: float) -> None:
        if not keeper.is_alive:
            said = "\n".join(keeper.tail)
            raise PartFailedError(f"{keeper.part.name} ended with {_child(keeper).ending}\n{said}")
        if time.monotonic() > until:
            waited = f"{keeper.part.ready_within_s:.0f} s"
            raise PartFailedError(f"{keeper.part.name} did not answer within {waited} (log: {keeper.log.path})")


def _child(keeper: Keeper) -> Child:
    if keeper.child is None:
        raise RuntimeError(f"{keeper.part.name} is not running")
    return keeper.child


def _children() -> set[int]:
    """Return the process ids of this process's children, including adopted ones."""
    return {
        int(pid) for listing in Path("/proc/self/task").glob("*/children") for pid in listing.read_text().split()
    }
