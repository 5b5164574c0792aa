"""`manage.py spool sync DIR --target T`: exchange jobs and results with a spool directory."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from optimizer.actions.spool import AT_ONCE, Synced, directories_out, do_reclaim, do_sync_spool
from optimizer.actions.target import do_sync_targets
from optimizer.management.words import named
from optimizer.models import Target
from runners.dispatch.spool import Spool, SpoolError


class Command(BaseCommand):
    """Exchange jobs and results. `export` and `import` exist for people who carry the directory by hand."""

    help = (
        "Export waiting jobs of dispatcher `spool` to a directory and import finished results. `reclaim` queues again "
        "the jobs that were exported to a directory whose contents were lost."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare sync|export|import|reclaim DIR --target T [--watch SECONDS]."""
        parser.add_argument("action", choices=["sync", "export", "import", "reclaim"])
        parser.add_argument("directory", type=Path)
        parser.add_argument("--target", required=True)
        parser.add_argument("--at-once", type=int, default=AT_ONCE, help="maximum number of exported jobs")
        parser.add_argument(
            "--gone", action="store_true", help="reclaim: the directory is missing or empty for good"
        )
        parser.add_argument("--watch", type=float, metavar="SECONDS", help="repeat at this interval in seconds")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exchange once, or repeatedly until interrupted."""
        do_sync_targets()
        target = named(Target.objects.filter(key=options["target"]), "target", options["target"])
        if options["action"] == "reclaim":
            if options["watch"]:
                raise CommandError("reclaim is done once: leave --watch out.")
            return self._reclaim(options["directory"], target, gone=options["gone"])
        at_once = 0 if options["action"] == "import" else options["at_once"]
        while options["watch"]:
            self._try_to_exchange(options["directory"], target, at_once)
            time.sleep(options["watch"])
        try:
            self._exchange(options["directory"], target, at_once)
        except SpoolError as error:
            raise CommandError(str(error)) from error

    def _reclaim(self, directory: Path, target: Target, *, gone: bool) -> None:
        if not gone and not (directory.is_dir() and any(directory.iterdir())):
            raise CommandError(
                f"{directory} is missing or empty, as where a share is not mounted. If its contents are lost for good, "
                "add --gone."
            )
        try:
            reclaimed = do_reclaim(Spool(directory), target)
        except SpoolError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{reclaimed} lost jobs queued again")
        if out := directories_out(target):
            self.stdout.write(f"jobs of {target.key} are out in {', '.join(out)}")

    def _try_to_exchange(self, directory: Path, target: Target, at_once: int) -> None:
        """Exchange, and print an error such as a full disk or a database restart instead of ending the watch."""
        try:
            self._exchange(directory, target, at_once)
        except (SpoolError, DatabaseError) as error:
            self.stderr.write(str(error))
            # A failed connection would fail every later statement as well.
            connection.close()

    def _exchange(self, directory: Path, target: Target, at_once: int) -> None:
        spool = Spool(directory)
        self._say(do_sync_spool(spool, target, at_once))
        for public in sorted(spool.strangers):
            self.stderr.write(
                f"results are left alone: they are signed by a runner that is not trusted here. Compare {public} with "
                f"what `python -m runners keys` shows there, then: {settings.SITE_COMMAND} keys trust runner {public}"
            )

    def _say(self, synced: Synced) -> None:
        self.stdout.write(
            f"{synced.exported} jobs out, {synced.imported} results in, {synced.repeated} repeated, "
            f"{synced.refused} refused, {synced.withdrawn} withdrawn"
        )
