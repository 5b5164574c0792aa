"""`manage.py problems import|check|list`: import problems in any supported format."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Count
from django.template.defaultfilters import pluralize

from optimizer.models import Problem
from optimizer.problems.importing import Imported, import_finding
from runners.problems.commands import Finding, add_what_to_look_at, check, print_finding, run_check


class Command(BaseCommand):
    """Import problems. Reading executes nothing; a problem's code runs in its own process, limited in time and
    memory.
    """

    help = (
        "Import problems (native, KernelBench, GPU MODE, kernelbench.com), check them without importing, or list the "
        "imported ones."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare import PATH… [--no-run] | check PATH… [--run] | list."""
        actions = parser.add_subparsers(dest="action", required=True)
        taking = actions.add_parser("import", help="read, run each reference once, and store")
        taking.add_argument(
            "--no-run", dest="run_references", action="store_false", help="store without running references"
        )
        looking = actions.add_parser("check", help="read and report; store nothing")
        looking.add_argument("--run", dest="run_references", action="store_true", help="run each reference too")
        for with_paths in (taking, looking):
            add_what_to_look_at(with_paths)
        actions.add_parser("list", help="problems in the database")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action. Raises CommandError where a problem cannot be read."""
        getattr(self, f"_{options['action']}")(Namespace(**options))

    def _import(self, options: Namespace) -> None:
        outcomes: list[Imported] = []

        def take(finding: Finding) -> None:
            outcomes.append(import_finding(finding, options.target))
            self._tell(outcomes[-1])

        check(options.paths, options, report=take)
        stored = [outcome for outcome in outcomes if outcome.version is not None]
        new = sum(outcome.is_new for outcome in stored)
        self.stdout.write(f"{len(stored)} of {len(outcomes)} imported, {new} new versions")
        if len(stored) < len(outcomes):
            raise CommandError(f"{len(outcomes) - len(stored)} problems cannot be read")

    def _tell(self, outcome: Imported) -> None:
        print_finding(outcome.finding)
        if outcome.version is not None:
            state = "new" if outcome.is_new else "known"
            self.stdout.write(f"    {outcome.version.problem.slug} version {outcome.version.number}, {state}")

    def _check(self, options: Namespace) -> None:
        if run_check(options):
            raise CommandError("some problems are unusable; they are listed above")

    def _list(self, options: Namespace) -> None:
        runs = dict(Problem.objects.values_list("pk").annotate(n=Count("versions__runs", distinct=True)))
        for problem in Problem.objects.order_by("slug"):
            version = problem.versions.order_by("-number").first()
            read_from = version.bundle["format"] if version else "-"
            warnings = len(version.warnings) if version else 0
            count, number = runs[problem.pk], version.number if version else 0
            counts = f"{count} run{pluralize(count)}, {warnings} warning{pluralize(warnings)}"
            self.stdout.write(f"{problem.slug:40} v{number:<3} {read_from:12} {counts}  {problem.origin}")
