"""Back up and restore with PostgreSQL's own programs.

Their version is that of the embedded server where there is one; for a server elsewhere the newest programs here are
used.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelsci_site.services.binaries import postgres_candidates

EMPTY = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
# A managed server keeps schemas of its own in every database. They are not ours to save or to replace.
OURS = "--schema=public"


class DumpError(RuntimeError):
    """Report that a backup or restore failed and nothing was changed. The message is meant for the reader."""


def back_up(database: Mapping[str, Any], major: int, file: Path) -> int:
    """Write all our tables to `file` completely or not at all, and return its size in bytes. Raises DumpError.

    The format is PostgreSQL's custom format, compressed. The snapshot is consistent and blocks nobody.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    command = [
        _program("pg_dump", major),
        "--format=custom",
        OURS,
        "--no-owner",
        "--no-privileges",
        f"--file={draft}",
    ]
    # Create the file with its mode before anything is in it: pg_dump would create it readable for the group.
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    try:
        _run(command, database)
        # An atomic rename: a backup that was interrupted never looks like a complete one.
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file.stat().st_size


def restore(database: Mapping[str, Any], major: int, file: Path) -> None:
    """Replace all tables by those of `file`, in one transaction. Raises DumpError."""
    script = [_program("pg_restore", major), OURS, "--no-owner", "--no-privileges", "--file=-", str(file)]
    load = [_program("psql", major), "--no-psqlrc", "--quiet", "--single-transaction", "--output=/dev/null"]
    # Without it, psql would report success after an error.
    load += ["--set=ON_ERROR_STOP=1", f"--command={EMPTY}", "--file=-"]
    read = subprocess.run(script, capture_output=True, text=True, check=False)
    if read.returncode != 0:  # a file that breaks off must not get as far as a commit
        raise DumpError(f"pg_restore: {read.stderr.strip()[-1000:]}")
    _run(load, database, read.stdout)


def _run(command: list[str], database: Mapping[str, Any], script: str = "") -> None:
    environment = _environment(database)
    done = subprocess.run(command, input=script, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DumpError(f"{Path(command[0]).name}: {done.stderr.strip()[-1000:]}")


def _environment(database: Mapping[str, Any]) -> dict[str, str]:
    """Return libpq's variables, because everybody on the machine can read a password on a command line."""
    names = {"NAME": "PGDATABASE", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "HOST": "PGHOST", "PORT": "PGPORT"}
    chosen = {variable: str(database[key]) for key, variable in names.items() if database.get(key)}
    options = database.get("OPTIONS", {})
    tls = {f"PG{key.upper()}": str(options[key]) for key in ("sslmode", "sslrootcert") if key in options}
    return {**os.environ, **chosen, **tls}


def _program(name: str, major: int) -> str:
    """Return a program of that major version, else of the next higher one. Raises DumpError."""
    able = sorted((found for found in postgres_candidates() if found.major >= major), key=lambda one: one.major)
    for found in able:
        if os.access(found.program(name), os.X_OK):
            return found.program(name)
    raise DumpError(f"no {name} of PostgreSQL {major} or newer is here. Debian: apt-get install postgresql-client")
