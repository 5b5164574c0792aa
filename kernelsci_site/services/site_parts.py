"""Define the parts of the site itself: the web server and the workers."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelsci_site.services.part import Part
from runners.dispatch.kernelbot import kernelbot_queues
from runners.kernelbot.account import is_configured

PORTS_TRIED = 20
LAST_PORT = 65_535
LIVELY_WITHIN_S = 2.0
# Workers hold no untrusted code themselves: the sandbox does, and it gives up root first.
AS_ROOT_BY_INTENT = "ignore:You're running the worker with superuser privileges"


class NoPortError(RuntimeError):
    """Report that there is no address to listen on. The message gives the reason, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on `port`, or on the next free one of twenty. Raises `NoPortError`.

    The supervisor holds the socket and passes it to each web server in turn. While one restarts, callers wait in the
    queue instead of being refused.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= LAST_PORT:
        raise NoPortError(f"there is no port {port}: choose one from 1024 to {LAST_PORT} with --port")
    candidates = range(port, min(port + PORTS_TRIED, LAST_PORT + 1))
    for candidate in candidates:
        try:
            return _bound(family, host, candidate)
        except OSError as error:
            reason = error.strerror
    raise NoPortError(
        f"cannot listen on {host}, ports {port} to {candidates[-1]}: {reason}. "
        "Choose others with --port and --host (make start UP='--port 9000')"
    )


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait until old connections have left TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def web_part(listener: socket.socket, folder: Path, *, host_header: str) -> Part:
    """Return Daphne as a part that serves an open socket."""
    command = [sys.executable, "-m", "daphne", "-v", "0", "--fd", str(listener.fileno())]
    # after a restart all open pages come back at once, and who they are is looked up one after the other
    command += ["--websocket_connect_timeout", "60"]
    return Part(
        name="web",
        command=[*command, "kernelsci_site.asgi:application"],
        abandon_signal=signal.SIGKILL,
        keep_fds=(listener.fileno(),),
        folder=folder,
        is_ready=lambda: _answers(listener, host_header),
    )


def worker_part(name: str, queues: Sequence[str], processes: int, folder: Path, *, beats: bool = False) -> Part:
    """Return a Celery worker for some queues. Its work is leased, so a worker that does not end in time may be
    killed.
    """
    command = [sys.executable, "-W", AS_ROOT_BY_INTENT, "-m", "celery", "--quiet", "--skip-checks"]
    # Whoever starts the parts has run Django's checks; each worker would import all pages for them.
    command += ["-A", "kernelsci_site", "worker"]
    command += ["-n", f"{name}@%h", "-Q", ",".join(queues), "-c", str(processes), "-l", "WARNING"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    command += ["-B", "--scheduler", "celery.beat:Scheduler"] if beats else []
    return Part(name=name, command=command, abandon_signal=signal.SIGKILL, folder=folder)


def worker_parts(targets: Sequence[str], folder: Path) -> list[Part]:
    """Return the workers of one machine.

    `agents` mostly waits for language models, so several at once cost nothing. A single `build` leaves a core of two
    to the timings. Measuring is one job per device. `timer` decides and sweeps, apart from every long call that could
    delay it. Where the environment names an account at KernelBot, one more worker waits there.
    """
    return [
        worker_part("timer", ["timer"], 2, folder, beats=True),
        worker_part("agents", ["agents"], 4, folder),
        worker_part("build", ["build"], 1, folder),
        *(worker_part(f"bench.{target}", [f"bench.{target}"], 1, folder) for target in targets),
        *([worker_part("kernelbot", kernelbot_queues(), 1, folder)] if is_configured() else []),
    ]


def _answers(listener: socket.socket, host_header: str) -> bool:
    """Return whether a request through our own socket gets an answer without error."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    connection = http.client.HTTPConnection(reachable, port, timeout=LIVELY_WITHIN_S)
    try:
        connection.request("GET", "/healthz", headers={"Host": host_header})
        # A bound port is no proof: the socket is open before the server accepts.
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
