"""Manage the folder of everything that this installation writes: data of the servers, logs, secrets, sockets."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class UnsafeFolderError(RuntimeError):
    """Report that a folder which must be ours alone belongs to, or is writable by, somebody else."""


class UnwritableFolderError(RuntimeError):
    """Report that nothing can be written where it has to be. The message says why, and what to do."""


def default_root(base: Path) -> Path:
    """Return the folder of an installation that names none: `var` in a clone, else one of the user's."""
    if (base / "manage.py").is_file():
        return base / "var"
    data = os.environ.get("XDG_DATA_HOME", "").strip()
    return (Path(data) if data else Path.home() / ".local" / "share") / "kernelsci"


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the system refuses while we write to `folder` into an `UnwritableFolderError`."""
    try:
        yield
    except OSError as error:
        raise UnwritableFolderError(
            f"{folder} cannot be written: {os.strerror(error.errno or 0)}. "
            "Free some space or mend its permissions, or name another folder with KERNELSCI_VAR"
        ) from error


@dataclass(frozen=True)
class Var:
    """Represent one installation's folder. Its path determines the sockets, so any later command finds the servers."""

    root: Path

    @classmethod
    def at(cls, path: str | Path) -> Var:
        """Return the installation at `path`, resolved, so that every spelling of it leads to the same sockets."""
        return cls(Path(path).expanduser().resolve())

    def folder(self, *names: str) -> Path:
        """Return `root/names…`, created with access for this user only."""
        path = self.root
        with writing(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in names:
                path = path / name
                path.mkdir(mode=0o700, exist_ok=True)
        return path

    def check_room(self, needed_mb: int) -> None:
        """Raise `UnwritableFolderError` if less than `needed_mb` are free, before a server fails half-way."""
        free_mb = shutil.disk_usage(self.folder()).free // 1_000_000
        if free_mb < needed_mb:
            raise UnwritableFolderError(
                f"{free_mb} MB are free in {self.root}, {needed_mb} MB are needed: free some, "
                "or name another folder with KERNELSCI_VAR"
            )

    @property
    def socket_folder(self) -> Path:
        """Return the folder of the sockets, under /tmp because a socket's path may have at most 107 bytes."""
        key = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path("/tmp") / f"kernelsci-{os.getuid()}-{key}"  # noqa: S108 - mode and owner are checked below

    def make_socket_folder(self, service_users: tuple[int, ...] = ()) -> Path:
        """Create the socket folder with mode 0700, owned by us or one of `service_users`.

        Raises `UnsafeFolderError` when somebody else created it first.
        """
        path = self.socket_folder
        path.mkdir(mode=0o700, exist_ok=True)
        # `lstat` does not follow a symbolic link that somebody else may have placed in /tmp.
        found = path.lstat()
        # Root hands the folder to PostgreSQL's user where it cannot use a namespace; no one else could have.
        owner_is_safe = found.st_uid == os.getuid() or (os.getuid() == 0 and found.st_uid in service_users)
        ours = stat.S_ISDIR(found.st_mode) and owner_is_safe and not found.st_mode & 0o077
        if not ours:
            raise UnsafeFolderError(f"{path} is not a folder of ours with mode 0700: remove it and start again")
        return path

    def secret(self, name: str) -> str:
        """Return the secret called `name`, created at first use with mode 0600; concurrent processes get the same
        one.
        """
        path = self.folder("secrets") / name
        with writing(path):
            if not path.exists():
                _create_once(path, secrets.token_urlsafe(48))
            return path.read_text().strip()


def _create_once(path: Path, text: str) -> None:
    """Write `text` to `path` unless it exists. The first process to link wins, and nobody sees a half-written file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        # A secret that is lost in a power failure makes everything encrypted with it unreadable.
        os.fsync(file.fileno())
    try:
        # `link` fails if the target exists, unlike `rename`, so two processes cannot both win.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
