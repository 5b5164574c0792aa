"""Keep fork servers: interpreters from which sandboxed Python programs are forked (see `forking`, which runs in them).

A server is started for each set of modules, environment and processors when it is first needed. It ends when nothing
was asked of it for `IDLE_S` and nothing lives that was forked from it, and is started again when it is needed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runners.sandbox.base import SandboxError
from runners.sandbox.landlock import Config

# Each holds torch in memory.
MOST_SERVERS = 6
IDLE_S = 300.0
# How long a server may take for its imports, on a machine where everything else starts too.
START_S = 120.0
# After this many failures in a row a server is given up, and its programs are executed.
MOST_FAILURES = 3
# Variables that no library reads while it is imported, so that a program's values may differ from its server's.
# Variables for threads and memory are read then; a driver reads its own when a process opens the device.
LATE_VARIABLES, LATE_PREFIX = frozenset({"HOME", "TMPDIR", "CUDA_DEVICE_MAX_CONNECTIONS"}), "KERNELSCI_"
# What the dynamic linker and the C library read: a server is in no sandbox.
LOADER_PREFIXES = ("LD_", "GLIBC_")
# One message takes 253 descriptors (SCM_MAX_FD), of which five are the launcher's: configuration, status and streams.
MOST_PASSED = 253 - 5


@dataclass(frozen=True)
class ForkConfig(Config):
    """Hold what `forking` reads beside what `confine` reads.

    `argv` is the command line after `python -I`. `bubblewrap` is the command line that makes the namespaces, without
    the command in them, or None; `limiting` goes before that command. `descriptors` are the numbers of those that are
    sent along, `own` those that are the program's. `group` is a control group's file of process ids, or empty. `cpus`
    are the cores that it may use.
    """

    bubblewrap: list[str] | None
    limiting: list[str]
    env: dict[str, str]
    descriptors: list[int]
    own: list[int]
    group: str
    cpus: list[int]


class _Gone(Exception):
    """Report that a server has ended or does not answer."""


class ForkServer:
    """Own one server. Threads may share it. `modules` may also name files to run (see `forking`)."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self._modules, self._env = tuple(modules), dict(env)
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._failures = 0

    @property
    def usable(self) -> bool:
        """Return False once the server has failed too often in a row."""
        return self._failures < MOST_FAILURES

    @property
    def is_running(self) -> bool:
        """Return whether its process was started and has not ended."""
        running = self._running
        return running is not None and running.process.poll() is None

    def fork(self, config_fd: int, descriptors: Sequence[int]) -> tuple[int, int]:
        """Fork a launcher, given a configuration and the descriptors that it names.

        Return its process id and a descriptor of it. Raises OSError if this process cannot send the request, and
        SandboxError if no server can be started or the machine has no room for another process.
        """
        with self._lock:
            try:
                pid, descriptor = self._asked([config_fd, *descriptors])
            except _Gone as gone:
                self._failures += 1
                self._end()
                raise SandboxError(f"the process that programs are forked from {gone}") from gone
            self._failures = 0
        if descriptor is not None:
            return pid, descriptor
        if pid:  # this process has no room for the descriptor
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise SandboxError("no process could be forked")

    def _asked(self, descriptors: list[int]) -> tuple[int, int | None]:
        if self._running is not None and self.is_running:
            try:
                return self._running.ask(descriptors)
            except _Gone:  # it ended because it was idle, or somebody has ended it
                self._end()
        self._running = _Running(self._modules, self._env)
        with _import():
            return self._running.ask(descriptors)

    def _end(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def close(self) -> None:
        """End the server and all that were forked from it."""
        with self._lock:
            self._end()


class _Running:
    """Own a server's process. Raises _Gone if it cannot be started."""

    def __init__(self, modules: tuple[str, ...], env: dict[str, str]) -> None:
        self._socket, far = socket.socketpair()
        self._socket.settimeout(START_S)
        program = str(Path(__file__).with_name("forking.py"))
        argv = [sys.executable, "-I", program, str(far.fileno()), str(IDLE_S), ",".join(modules)]
        started: Future[subprocess.Popen[bytes]] = Future()

        def own() -> None:
            # The kernel's parent-death signal follows this thread, which lives as long as the server does.
            with far:
                try:
                    process = _popen(argv, env, far.fileno())
                except OSError as error:
                    started.set_exception(error)
                    return
            started.set_result(process)
            process.wait()

        threading.Thread(target=own, name="fork-server", daemon=True).start()
        try:
            self.process = started.result()
        except OSError as error:
            self._socket.close()
            raise _Gone(f"cannot be started: {error}") from error

    def ask(self, descriptors: list[int]) -> tuple[int, int | None]:
        """Return a launcher's process id, and a descriptor of it if it was forked. Raises OSError, _Gone."""
        try:
            socket.send_fds(self._socket, [b"f"], descriptors)
            answer, found, _, _ = socket.recv_fds(self._socket, 8, 1)
        except TimeoutError:
            # What it forks from now on is nobody's.
            self.process.kill()
            raise _Gone(f"did not answer within {START_S:g} s") from None
        except ConnectionError:
            answer = b""
        if not answer:
            raise _Gone("has ended")
        for descriptor in found:
            os.set_inheritable(descriptor, False)
        return int.from_bytes(answer, "little"), (found[0] if found else None)

    def close(self) -> None:
        """End the server, upon which all that were forked from it end."""
        self._socket.close()
        self.process.kill()


def _popen(argv: list[str], env: dict[str, str], descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,
    )


_Key = tuple[tuple[str, ...], frozenset[tuple[str, str]], frozenset[int]]
_servers: dict[_Key, ForkServer] = {}
_guard = threading.Lock()
_imports, _imported = 0, threading.Condition()
# A fork of this process must not talk on sockets that its parent uses.
os.register_at_fork(after_in_child=_servers.clear)


@contextmanager
def _import() -> Iterator[None]:
    """Count a server that imports."""
    global _imports
    with _imported:
        _imports += 1
    try:
        yield
    finally:
        with _imported:
            _imports -= 1
            _imported.notify_all()


def await_imports() -> None:
    """Wait until no server of this process is importing anything, because that disturbs what is timed beside it."""
    with _imported:
        _imported.wait_for(lambda: not _imports, START_S)


def server_for(modules: Sequence[str], env: Mapping[str, str], cpus: frozenset[int]) -> ForkServer | None:
    """Return a server that has imported these modules in that environment, on those cores.

    Return None if servers of as many other kinds are running as may be, if this one has failed too often, or if a
    variable would change what is loaded into a server, which is in no sandbox.
    """
    if any(name.startswith(LOADER_PREFIXES) for name in env):
        return None
    key = (tuple(modules), early_variables(env), cpus)
    with _guard:
        if key not in _servers:
            _make_room()
            if len(_servers) >= MOST_SERVERS:
                return None
            own = {name: value for name, value in env.items() if not name.startswith(LATE_PREFIX)}
            _servers[key] = ForkServer(modules, own)
        server = _servers[key]
    return server if server.usable else None


def _make_room() -> None:
    """Forget the servers that are not running, if there are as many as may be."""
    if len(_servers) >= MOST_SERVERS:
        for key in [key for key, server in _servers.items() if server.usable and not server.is_running]:
            del _servers[key]


def early_variables(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the variables that programs of one server have in common."""
    return frozenset(
        (name, value)
        for name, value in env.items()
        if name not in LATE_VARIABLES and not name.startswith(LATE_PREFIX)
    )
