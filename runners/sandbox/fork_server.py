"""Keep interpreters from which sandboxed Python programs are forked (see `forking`, which runs in them).

A server is started for each set of modules and environment when it is first needed, ends when nothing was asked of it
for `IDLE_S` and nothing lives that was forked from it, and is started again.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.sandbox.base import SandboxError
from runners.sandbox.landlock import Config

# Each holds torch in memory.
MOST_SERVERS = 6
IDLE_S = 300.0
# How long a server may take for its imports, on a machine where everything else starts too.
START_S = 120.0
# A server that could not be used so often in a row is given up, and programs are executed instead.
MOST_FAILURES = 3
# Variables that nothing reads while it is imported, so that a program may have other values than its server. Libraries
# read those of threads and memory as soon as they are loaded.
LATE_VARIABLES, LATE_PREFIX = frozenset({"HOME", "TMPDIR"}), "KERNELSCI_"


@dataclass(frozen=True)
class ForkConfig(Config):
    """Hold what `forking` reads besides.

    `argv` is the command line after `python -I`. `bubblewrap` is the command line that makes the namespaces, without
    the command in them, or None. `descriptors` are the numbers of those that are sent along, `own` those that are the
    program's. `group` is a control group's file of process ids, or empty. `cpus` are the cores that it may use.
    """

    bubblewrap: list[str] | None
    env: dict[str, str]
    descriptors: list[int]
    own: list[int]
    group: str
    cpus: list[int]


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

    def fork(self, config_fd: int, descriptors: Sequence[int]) -> tuple[int, int]:
        """Fork a launcher, given a configuration and the descriptors that it names.

        Return its process id and a descriptor of it. Raises SandboxError if no server can be started, or if the
        launcher ended at once.
        """
        with self._lock:
            try:
                answer = self._asked([config_fd, *descriptors])
            except OSError as error:
                self._failures += 1
                self._end()
                raise SandboxError(f"the process that programs are forked from does not answer: {error}") from error
            self._failures = 0
        pid, descriptor = answer
        if descriptor is None:
            raise SandboxError("the launcher ended at once")
        return pid, descriptor

    def _asked(self, descriptors: list[int]) -> tuple[int, int | None]:
        if self._running is not None:
            try:
                return self._running.ask(descriptors)
            except OSError:  # it was idle and has ended, or somebody has ended it
                self._end()
        self._running = _Running(self._modules, self._env)
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
    """Own a server's process. Raises OSError if it cannot be started."""

    def __init__(self, modules: tuple[str, ...], env: dict[str, str]) -> None:
        self._socket, far = socket.socketpair()
        self._socket.settimeout(START_S)
        program = str(Path(__file__).with_name("forking.py"))
        argv = [sys.executable, "-I", program, str(far.fileno()), str(IDLE_S), ",".join(modules)]
        started: list[subprocess.Popen[bytes] | OSError] = []
        known = threading.Event()

        def own() -> None:
            # The kernel's parent-death signal follows this thread, which lives as long as the server does.
            with far:
                try:
                    process = _popen(argv, env, far.fileno())
                except OSError as error:
                    started.append(error)
                    return
                finally:
                    known.set()
            started.append(process)
            process.wait()

        threading.Thread(target=own, name="fork-server", daemon=True).start()
        known.wait()

    def ask(self, descriptors: list[int]) -> tuple[int, int | None]:
        """Return a launcher's process id, and a descriptor of it unless it has ended. Raises OSError."""
        socket.send_fds(self._socket, [b"f"], descriptors)
        answer, found, _, _ = socket.recv_fds(self._socket, 8, 1)
        if not answer:
            raise ConnectionResetError("it has ended")
        for descriptor in found:
            os.set_inheritable(descriptor, False)
        return int.from_bytes(answer, "little"), (found[0] if found else None)

    def close(self) -> None:
        """Close the connection, upon which the server ends."""
        self._socket.close()


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
# A fork of this process must not talk on sockets that its parent uses.
os.register_at_fork(after_in_child=_servers.clear)


def server_for(modules: Sequence[str], env: Mapping[str, str], cpus: frozenset[int]) -> ForkServer | None:
    """Return a server that has imported these modules in that environment, on those cores.

    Return None if there are as many of other kinds as may be, or if this one has failed too often.
    """
    early = {(name, value) for name, value in env.items() if not _is_late(name)}
    key = (tuple(modules), frozenset(early), cpus)
    with _guard:
        if key not in _servers and len(_servers) < MOST_SERVERS:
            own = {name: value for name, value in env.items() if not name.startswith(LATE_PREFIX)}
            _servers[key] = ForkServer(modules, own)
        server = _servers.get(key)
    return server if server is not None and server.usable else None


def _is_late(name: str) -> bool:
    return name in LATE_VARIABLES or name.startswith(LATE_PREFIX)


def close_servers() -> None:
    """End all servers of this process."""
    with _guard:
        servers = list(_servers.values())
        _servers.clear()
    for server in servers:
        server.close()
