"""`manage.py retain --days N`: delete old data that is no longer needed."""

from __future__ import annotations

import datetime as dt
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kernelsci_site.services.database_access import database
from optimizer.upkeep.retention import KINDS, drop, droppable


class Command(BaseCommand):
    """Delete old data. May run while the site is working, and may be interrupted."""

    help = (
        "Drop raw samples, prompts and live logs of runs that ended long ago; never a released kernel's evidence."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare --days N [--dry-run] [--only KIND]."""
        parser.add_argument(
            "--days", type=int, required=True, help="keep data of runs that ended in the last N days"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument("--only", action="append", choices=sorted(KINDS), help="samples, prompts or logs")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete, or count. Raises CommandError for an impossible age."""
        if options["days"] < 1:
            raise CommandError("--days must be at least 1")
        before = timezone.now() - dt.timedelta(days=options["days"])
        with database():
            for kind in options["only"] or sorted(KINDS):
                count = droppable(kind, before).count() if options["dry_run"] else drop(kind, before)
                self.stdout.write(f"{kind}: {count} {'would be deleted' if options['dry_run'] else 'deleted'}")
