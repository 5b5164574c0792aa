"""Bring the data of an older version to this one: refuse newer data, and keep a copy before tables change."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from kernelsci_site.services.dump import back_up

KEPT = 3


class NewerDataError(RuntimeError):
    """Report that the data was written by a newer version. The message says which way out there is."""


def refuse_newer_data(backups: Path) -> None:
    """Raise `NewerDataError` if the database has had migrations that this version does not know.

    Older code would run on such tables for a while, and fail or damage them later.
    """
    if unknown := unknown_migrations(MigrationLoader(connection)):
        way_out = "name another folder with KERNELSCI_VAR"
        if copies := _copies(backups):
            way_out = f"go back to a copy from before: {settings.SITE_COMMAND} restore --replace '{copies[-1]}'"
        raise NewerDataError(
            f"This data was written by a newer version: its migration {unknown[-1]} is unknown here. "
            f"Start that version again, or {way_out}."
        )


def unknown_migrations(loader: MigrationLoader) -> list[str]:
    """Return the applied migrations of installed apps that are not among this version's files."""
    # A squashed migration stands for those that it replaces, whose files may be gone.
    replaced = {key for migration in loader.disk_migrations.values() for key in migration.replaces}
    known = {*loader.disk_migrations, *replaced}
    installed = {app for app, _name in loader.disk_migrations}
    applied = [key for key in loader.applied_migrations if key[0] in installed]
    return [f"{app}.{name}" for app, name in applied if (app, name) not in known]


def back_up_before_migrating(backups: Path) -> Path | None:
    """Write the database to a file if migrations are due in one that has data; keep the last three such files.

    Returns the file, or None when there was nothing to keep. Raises `DumpError`; then nothing may be migrated.
    """
    executor = MigrationExecutor(connection)
    due = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not due or not executor.loader.applied_migrations:
        return None
    taken_at = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S")
    file = backups / f"before-{taken_at}-{due[-1][0].name}.dump"
    back_up(connection, file)
    for older in _copies(backups)[:-KEPT]:
        older.unlink()
    return file


def _copies(backups: Path) -> list[Path]:
    """Return the files that earlier upgrades left, oldest first, by the time in their names."""
    return sorted(backups.glob("before-*.dump"))
