"""`manage.py report RUN FILE`: write a run's report as one file, HTML or Markdown by the file's ending."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from optimizer.management.words import named
from optimizer.models import Run
from optimizer.reports.facts import facts_of
from optimizer.reports.files import REPORT_FORMATS
from optimizer.reports.markdown import markdown_report


class Command(BaseCommand):
    """Write the file that the page offers as a download."""

    help = "Write a run's report: FILE.html with its charts, or FILE.md; - prints Markdown."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare RUN FILE."""
        parser.add_argument("run", type=int, help="number of the run")
        parser.add_argument("file", help="output file ending in .html or .md; - prints Markdown")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the report. Raises CommandError for an unknown run, another ending, or a path that
        cannot be written.
        """
        run = named(Run.objects.for_dashboard().filter(pk=options["run"]), "run", options["run"])
        if options["file"] == "-":
            self.stdout.write(markdown_report(facts_of(run)))
            return
        path = Path(options["file"])
        form = REPORT_FORMATS.get(path.suffix.removeprefix("."))
        if form is None:
            raise CommandError(f"{path}: a report ends in .{' or .'.join(REPORT_FORMATS)}")
        try:
            path.write_text(form.write(facts_of(run)), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}") from error
        self.stdout.write(f"{path}: {run}")
