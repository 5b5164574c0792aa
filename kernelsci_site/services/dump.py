"""Back up and restore with PostgreSQL's own programs.

Their version is that of the embedded server where there is one; for a server elsewhere the newest programs here are
used.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from kernelsci_site.services.binaries import postgres_candidates

# The table that every site has, by which its schema is found.
MARKER = "django_migrations"
# A managed server keeps schemas and extensions of its own in every database. They are not ours to save or to replace.
SCHEMA_OF_TABLES = """
SELECT coalesce(
  (SELECT nspname FROM pg_namespace s JOIN pg_class t ON t.relnamespace = s.oid WHERE t.oid = to_regclass(%s)),
  current_schema())
"""
EMPTY = """
DO $empty$
DECLARE statements text;
BEGIN
  SELECT string_agg(format('DROP %s IF EXISTS %s CASCADE', kind, name), ';') INTO statements FROM (
    SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END AS kind,
           oid::regclass::text AS name, 'pg_class'::regclass AS catalog, oid AS object
    FROM pg_class WHERE relnamespace = quote_ident({schema})::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
    UNION ALL
    SELECT 'ROUTINE', oid::regprocedure::text, 'pg_proc'::regclass, oid
    FROM pg_proc WHERE pronamespace = quote_ident({schema})::regnamespace
  ) found
  WHERE NOT EXISTS (SELECT FROM pg_depend WHERE classid = catalog AND objid = object AND deptype = 'e');
  IF statements IS NOT NULL THEN EXECUTE statements; END IF;
END $empty$
"""


class DumpError(RuntimeError):
    """Report that a backup or restore failed and nothing was changed. The message is meant for the reader."""


def back_up(connection: BaseDatabaseWrapper, file: Path) -> int:
    """Write all tables of the site to `file`, or nothing, and return its size in bytes. Raises DumpError.

    The format is PostgreSQL's custom format, compressed. The snapshot is consistent and blocks nobody.
    """
    schema, draft = _schema(connection), file.with_name(f".{file.name}.{os.getpid()}")
    command = [_program("pg_dump", _major(connection)), "--format=custom", "--no-owner", "--no-privileges"]
    command += [f'--schema="{schema}"', f"--file={draft}"]
    # Create the file with its mode before anything is in it: pg_dump would create it readable for the group.
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    try:
        _run(command, connection.settings_dict)
        # An atomic rename: a backup that was interrupted never looks like a complete one.
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file.stat().st_size


def restore(connection: BaseDatabaseWrapper, file: Path) -> None:
    """Replace all tables of the site by those of `file`, in one transaction. Raises DumpError."""
    schema, major = _schema(connection), _major(connection)
    _check_schema(_read_backup(major, "--list", str(file)), schema)
    script = _read_backup(major, f"--schema={schema}", "--no-owner", "--no-privileges", "--file=-", str(file))
    load = [_program("psql", major), "--no-psqlrc", "--quiet", "--single-transaction", "--output=/dev/null"]
    literal = "'" + schema.replace("'", "''") + "'"
    # Without it, psql would report success after an error.
    load += ["--set=ON_ERROR_STOP=1", f"--command={EMPTY.format(schema=literal)}", "--file=-"]
    _run(load, connection.settings_dict, script)


def _read_backup(major: int, *arguments: str) -> str:
    """Return what pg_restore prints. Raises DumpError, also for a file that breaks off."""
    read = subprocess.run([_program("pg_restore", major), *arguments], capture_output=True, text=True, check=False)
    if read.returncode != 0:
        raise DumpError(f"pg_restore: {read.stderr.strip()[-1000:]}")
    return read.stdout


def _check_schema(contents: str, schema: str) -> None:
    """Raise DumpError unless the tables of a backup belong into this schema."""
    found = re.search(rf"^\d+; \d+ \d+ TABLE (?!DATA )(.+) {MARKER} ", contents, re.MULTILINE)
    if found is None:
        raise DumpError(f"this is no backup of a site: it has no table {MARKER}")
    if found[1] != schema:
        raise DumpError(f'the backup was taken from the schema "{found[1]}", and this site uses "{schema}"')


def _schema(connection: BaseDatabaseWrapper) -> str:
    """Return the schema that has, or would get, the site's tables."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEMA_OF_TABLES, [MARKER])
        return str(cursor.fetchone()[0])


def _major(connection: BaseDatabaseWrapper) -> int:
    return int(connection.pg_version) // 10_000  # type: ignore[attr-defined]


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
