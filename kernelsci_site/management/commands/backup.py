"""`manage.py backup FILE`: write all tables of the site to one file."""

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
from kernelsci_site.services.secret_files import save_secrets


class Command(BaseCommand):
    """Back up the database while the site is running, or without it."""

    help = (
        "Write the site's tables to a file (pg_dump, custom format), and with --secrets the secrets to another: the "
        "keys that encrypt providers' keys, and the key that signs receipts."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare FILE [--secrets FILE]."""
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--secrets",
            type=Path,
            metavar="FILE",
            help="write the secrets there; keep it elsewhere than the backup",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the backup. Raises CommandError."""
        file: Path = options["file"]
        try:
            with database():
                size = back_up(connection, file)
            saved = self._save(options["secrets"])
        except (DumpError, NoServerError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{file}: {size:,} bytes")
        self.stdout.write(saved)

    def _save(self, file: Path | None) -> str:
        """Save the secrets, if asked to, and return what to tell."""
        folder = settings.VAR.root / "secrets"
        if file is None:
            return (
                f"Not included: {folder}. Without it providers' keys cannot be read, and receipts get another key. "
                "--secrets FILE saves it."
            )
        names = save_secrets(folder, Path(settings.RECEIPT_KEY), file)
        return f"{file}: {', '.join(names)}"
