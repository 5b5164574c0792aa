"""`manage.py restore FILE`: restore the database from a backup."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from kernelsci_site.services.binaries import NoServerError
from kernelsci_site.services.database_access import database_at_rest
from kernelsci_site.services.dump import DumpError, restore
from kernelsci_site.services.instance import AlreadyRunningError
from kernelsci_site.services.secret_files import restore_secrets


class Command(BaseCommand):
    """Restore everything or nothing, in one transaction. A backup of an older version is migrated afterwards."""

    help = "Replace all tables of the site by those of a backup. Stop the site first."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare FILE [--secrets FILE] [--replace]."""
        parser.add_argument("file", type=Path)
        parser.add_argument("--secrets", type=Path, metavar="FILE", help="restore the secrets from there too")
        parser.add_argument(
            "--replace", action="store_true", help="replace existing runs and secrets, which are lost"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore the backup. Raises CommandError."""
        for file in filter(None, (options["file"], options["secrets"])):
            if not file.is_file():
                raise CommandError(f"{file}: no such file")
        try:
            with database_at_rest():
                # First, because they are refused as a whole, and the database is then untouched.
                self._restore_secrets(options["secrets"], options["replace"])
                self._restore(options["file"], options["replace"])
        except (AlreadyRunningError, DumpError, NoServerError, OSError) as error:
            raise CommandError(str(error)) from error

    def _restore_secrets(self, file: Path | None, replace: bool) -> None:
        if file is None:
            return
        if not replace and _has_runs():
            raise CommandError("There are runs in this database. Back it up, then use --replace.")
        written = restore_secrets(file, settings.VAR.folder("secrets"), Path(settings.RECEIPT_KEY))
        self.stdout.write(f"Secrets restored from {file}: {', '.join(written) or 'all were here already'}.")

    def _restore(self, file: Path, replace: bool) -> None:
        if not replace and _has_runs():
            raise CommandError("There are runs in this database. Back it up, then use --replace.")
        restore(connection, file)
        connection.close()
        call_command("migrate", interactive=False, verbosity=0)
        self.stdout.write(f"The database was restored from {file} and migrated to this version.")


def _has_runs() -> bool:
    if "optimizer_run" not in connection.introspection.table_names():
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM optimizer_run)")
        return bool(cursor.fetchone()[0])
