"""Run Redis under our own supervision: one socket, no network, and a log on disk that survives a kill."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import redis

from kernelsci_site.services import privileges
from kernelsci_site.services.binaries import RedisBinary, find_redis
from kernelsci_site.services.part import Part
from kernelsci_site.services.var import Var


def socket_path(var: Var) -> Path:
    """Return the path of the embedded server's socket."""
    return var.socket_folder / "redis.sock"


def embedded_url(var: Var) -> str:
    """Return the URL of the embedded server of `var`, in redis-py's form."""
    return f"unix://:{quote(var.secret('redis'), safe='')}@{socket_path(var)}?db=0"


@dataclass(frozen=True)
class EmbeddedRedis:
    """Run the server whose data is in `var`.

    Only we can open the socket's folder (0700), and behind it stands a password.
    """

    var: Var

    @cached_property
    def program(self) -> RedisBinary:
        """Return the server to use. Raises `NoServerError`."""
        return find_redis()

    @property
    def data(self) -> Path:
        """Return the folder of the server's files."""
        return self.var.root / "redis"

    def part(self) -> Part:
        """Return the server as the supervisor runs it."""
        return Part(
            name="redis",
            command=[self.program.path, str(self._configuration)],
            quiet=True,
            is_server=True,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    def prepare(self) -> None:
        """Create the data folder and the configuration, and remove a dead server's socket."""
        self._discard_other_data()
        self.var.make_socket_folder(privileges.service_users())
        socket_path(self.var).unlink(missing_ok=True)
        self.var.folder("secrets")
        self._configuration.touch(mode=0o600)
        self._configuration.write_text("".join(f"{name} {value}\n" for name, value in self._settings().items()))

    def is_ready(self) -> bool:
        """Return whether the server answers; one that is still loading its data does not."""
        try:
            with redis.Redis.from_url(embedded_url(self.var), socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    @property
    def _configuration(self) -> Path:
        # In a file, because everybody on the machine can read a command line.
        return self.var.root / "secrets" / "redis.conf"

    def _settings(self) -> dict[str, str]:
        password = hashlib.sha256(self.var.secret("redis").encode()).hexdigest()
        return {
            "port": "0",
            "unixsocket": _quoted(socket_path(self.var)),
            "unixsocketperm": "700",
            "dir": _quoted(self.data),
            "appendonly": "yes",
            "save": '""',
            "daemonize": "no",
            # Without what loads code or copies the data elsewhere. Scripts must stay: kombu releases its locks by one.
            "user": f"default on #{password} ~* &* +@all -debug -module -replicaof -slaveof -migrate",
        }

    def _discard_other_data(self) -> None:
        """Remove the files of another server: one that cannot read them never starts, and losing them costs seconds."""
        made_by = self.data / "made-by"
        if not made_by.exists() or made_by.read_text() != self.program.data_format:
            shutil.rmtree(self.data, ignore_errors=True)
        self.var.folder("redis")
        made_by.write_text(self.program.data_format)


def _quoted(path: Path) -> str:
    """Return a path as the configuration's parser reads it, whatever characters it has."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
