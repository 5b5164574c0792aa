"""Redis under our own supervision: one socket, no network, and a log on disk that survives a kill."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import redis

from kernelsci_site.services import unroot
from kernelsci_site.services.binaries import find_redis
from kernelsci_site.services.part import Part
from kernelsci_site.services.var import Var


def socket_path(var: Var) -> Path:
    """The embedded server's socket."""
    return var.socket_folder / "redis.sock"


def embedded_url(var: Var) -> str:
    """Where the embedded server of `var` answers, as redis-py writes it."""
    return f"unix://{socket_path(var)}?db=0"


@dataclass(frozen=True)
class EmbeddedRedis:
    """The server whose data lies in `var`. The socket's folder is ours alone (0700), so there is no password."""

    var: Var

    @cached_property
    def program(self) -> tuple[str, str]:
        """(path, `system` or `wheel`). Raises `NoServerError`."""
        return find_redis()

    def part(self) -> Part:
        """The server as the supervisor keeps it."""
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
        """Make the data folder and forget a dead server's socket."""
        self.var.folder("redis")
        self.var.make_socket_folder(unroot.service_users())
        socket_path(self.var).unlink(missing_ok=True)

    def is_ready(self) -> bool:
        """Whether the server answers; one that is still loading its data does not."""
        try:
            with redis.Redis.from_url(embedded_url(self.var), socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
