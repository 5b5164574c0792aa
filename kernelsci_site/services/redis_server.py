"""Run Redis under our own supervision: one socket, no network, and a log on disk that survives a kill."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import redis

from kernelsci_site.services import privileges
from kernelsci_site.services.binaries import find_redis
from kernelsci_site.services.part import Part
from kernelsci_site.services.var import Var


def socket_path(var: Var) -> Path:
    """Return the path of the embedded server's socket."""
    return var.socket_folder / "redis.sock"


def embedded_url(var: Var) -> str:
    """Return the URL of the embedded server of `var`, in redis-py's form."""
    return f"unix://{socket_path(var)}?db=0"


@dataclass(frozen=True)
class EmbeddedRedis:
    """Run the server whose data is in `var`. Only we can open the socket's folder (0700), so there is no password."""

    var: Var

    @cached_property
    def program(self) -> tuple[str, str]:
        """Return (path, `system` or `wheel`). Raises `NoServerError`."""
        return find_redis()

    def part(self) -> Part:
        """Return the server as the supervisor runs it."""
        options = {
            "--port": "0",
            "--unixsocket": str(socket_path(self.var)),
            "--unixsocketperm": "700",
            "--dir": str(self.var.root / "redis"),
            "--appendonly": "yes",
            "--save": "",
            "--daemonize": "no",
        }
        command = [self.program[0], *(word for pair in options.items() for word in pair)]
        return Part(
            name="redis",
            command=command,
            quiet=True,
            is_server=True,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    def prepare(self) -> None:
        """Create the data folder and remove a dead server's socket."""
        self.var.folder("redis")
        self.var.make_socket_folder(privileges.service_users())
        socket_path(self.var).unlink(missing_ok=True)

    def is_ready(self) -> bool:
        """Return whether the server answers; one that is still loading its data does not."""
        try:
            with redis.Redis.from_url(embedded_url(self.var), socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
