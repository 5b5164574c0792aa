"""`manage.py record`: export a run's answers to a file, or import them."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from optimizer.actions.record import do_import_record
from optimizer.calls.record import record_of, shipped
from optimizer.llm.recording import RecordError, to_bytes
from optimizer.management.words import acting_user, named
from optimizer.models import Record, Run, Team


class Command(BaseCommand):
    """Exchange recordings. Export removes keys and private text; import checks every field."""

    help = "Export a run's answers as a recording, import one, or list those from which `replay` can answer."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare export RUN FILE | import FILE --team T --name N | list."""
        actions = parser.add_subparsers(dest="action", required=True)
        export = actions.add_parser("export", help="write a run's recording")
        export.add_argument("run", type=int)
        export.add_argument("file", type=Path)
        export.add_argument("--title", default="")
        taking = actions.add_parser("import", help="import a recording into a team")
        taking.add_argument("file", type=Path)
        taking.add_argument("--team", required=True, help="the team's short name")
        taking.add_argument("--name", required=True, help="the recording's name for `replay`")
        taking.add_argument("--user")
        actions.add_parser("list", help="shipped and imported recordings")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action."""
        getattr(self, f"_{options['action']}")(options)

    def _export(self, options: dict[str, Any]) -> None:
        run = named(Run.objects.filter(pk=options["run"]), "run", options["run"])
        record = record_of(run, options["title"])
        options["file"].write_bytes(to_bytes(record))
        self.stdout.write(f"{len(record.calls)} calls written to {options['file']}")

    def _import(self, options: dict[str, Any]) -> None:
        team = named(Team.objects.filter(slug=options["team"]), "team", options["team"])
        try:
            row = do_import_record(
                acting_user(options["user"]), team, options["name"], options["file"].read_bytes()
            )
        except (RecordError, OSError) as error:
            raise CommandError(str(error)) from error
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        self.stdout.write(f"{row.name}: {len(row.content['calls'])} calls")

    def _list(self, options: dict[str, Any]) -> None:
        for name in shipped():
            self.stdout.write(f"{name}\tshipped")
        for row in Record.objects.select_related("team"):
            self.stdout.write(f"{row.name}\t{row.team.slug}")
