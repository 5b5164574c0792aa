"""`manage.py plan RUN [--json]`: print what a run will send to its device, and why."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from optimizer.management.words import named
from optimizer.models import Run
from optimizer.reports.plan import as_plain, plan_table
from optimizer.runs.plan import plan_of


class Command(BaseCommand):
    """Print the table that the run's page and the API show."""

    help = "Print what a run will send to its device, in order, with predicted times and device seconds."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare RUN and --json."""
        parser.add_argument("run", type=int, help="number of a run")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the plan."""
        plan = plan_of(named(Run.objects.filter(pk=options["run"]), "run", options["run"]))
        self.stdout.write(json.dumps(as_plain(plan)) if options["json"] else plan_table(plan))
