"""`manage.py drain`: let every measuring worker finish its job and claim no more, before a deploy."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from optimizer.actions.runner import do_drain_for_deploy, do_undrain_after_deploy
from optimizer.queries.runners import at_work

LOOK_EVERY_S = 1.0


class Command(BaseCommand):
    """Drain the workers. Runs are unaffected: their next jobs wait in the queue until workers claim again."""

    help = "Drain all workers and wait until none has a job; --undo lets them claim jobs again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare [--wait SECONDS] [--undo]."""
        parser.add_argument(
            "--wait", type=float, default=900.0, help="maximum wait in seconds (default %(default)s)"
        )
        parser.add_argument("--undo", action="store_true", help="let drained workers claim again")

    def handle(self, *args: Any, **options: Any) -> None:
        """Drain, or undo it. Raises CommandError when workers are still busy, since their jobs would be repeated."""
        if options["undo"]:
            self.stdout.write(f"{do_undrain_after_deploy()} workers claim jobs again")
            return
        self.stdout.write(f"{do_drain_for_deploy()} workers claim no more jobs")
        deadline = time.monotonic() + options["wait"]
        # Jobs that ended between two looks are simply gone from the list.
        while busy := at_work():
            if time.monotonic() > deadline:
                raise CommandError(f"still working: {', '.join(busy)}")
            time.sleep(LOOK_EVERY_S)
        self.stdout.write(
            f"All workers are idle. Stop the site, upgrade, start it, then: {settings.SITE_COMMAND} drain --undo"
        )
