"""`manage.py backup FILE`: write the whole database to one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from kernelsci_site.services.binaries import NoServerError
from kernelsci_site.services.database_access import database
from kernelsci_site.services.dump import DumpError, back_up


class Command(BaseCommand):
    """Back up the database while the site is running, or without it."""

    help = (
        "Write the database to a file (pg_dump, custom format). The secrets are not included: keep var/secrets too."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare FILE."""
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the backup. Raises CommandError."""
        file: Path = options["file"]
        try:
            with database():
                size = back_up(connection.settings_dict, connection.pg_version // 10_000, file)  # type: ignore[attr-defined]
        except (DumpError, NoServerError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{file}: {size:,} bytes")
        self.stdout.write(
            f"Providers' keys can be read only with {settings.VAR.root / 'secrets'}: keep that folder too."
        )
