"""`manage.py observe DIR --run N`: submit the kernels of a folder, and write verdicts beside them."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from optimizer.actions.run import NewRun, do_start_run
from optimizer.actions.submission import do_finish_run
from optimizer.management.words import acting_user
from optimizer.models import Problem, Run, RunState, Target, Team
from optimizer.models.run import RunTransitionError
from optimizer.observing.folder import ObservedFolder
from optimizer.queries.budgets import Budget
from optimizer.search.external import External

POLL_S = 2.0
PATIENCE_S = 60.0


class Command(BaseCommand):
    """Watch a folder until the run ends or Ctrl-C."""

    help = "Submit kernels from a folder to a run of strategy external; verdicts go to DIR/verdicts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the folder, and the run or what is needed to start one."""
        parser.add_argument("folder", type=Path, metavar="DIR")
        parser.add_argument("--run", type=int, help="a live run of strategy external; without it one is started")
        parser.add_argument("--problem", help="name of a problem, to start a run")
        parser.add_argument("--target", default="cpu")
        parser.add_argument("--team", help="slug of the team; needed if the person is in several")
        parser.add_argument(
            "--evaluations", type=int, default=External.default_evaluations, help="budget of a new run"
        )
        parser.add_argument("--title", default="")
        parser.add_argument("--user", help="the acting person; default: the first administrator")
        parser.add_argument(
            "--reported", action="store_true", help="keep kernels with times in their notes as reported, unmeasured"
        )
        parser.add_argument("--once", action="store_true", help="submit the present files, then exit")
        parser.add_argument("--finish", action="store_true", help="finish the run at Ctrl-C, or after --once")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Watch the folder. Raises CommandError where it or the run cannot be used."""
        if not options["folder"].is_dir():
            raise CommandError(f"{options['folder']}: no such folder")
        run = self._run(options)
        watched = ObservedFolder(
            options["folder"].resolve(), run, acting_user(options["user"]), options["reported"]
        )
        self._await_start(run)
        self.stdout.write(f"Watching {watched.folder} for run {run.pk}.")
        try:
            self._watch(watched, once=options["once"])
        except KeyboardInterrupt:
            self.stdout.write("Stopped watching.")
        if options["finish"]:
            self._finish(watched)

    def _await_start(self, run: Run) -> None:
        """Wait until a new run takes kernels. Raises CommandError where nobody starts it."""
        deadline = time.monotonic() + PATIENCE_S
        while run.state == RunState.PENDING:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"No worker has started run {run.pk}. Start the site's workers: {settings.SITE_COMMAND} up"
                )
            time.sleep(0.2)
            run.refresh_from_db()

    def _watch(self, watched: ObservedFolder, *, once: bool) -> None:
        while True:
            for line in watched.scan():
                self.stdout.write(line)
            watched.run.refresh_from_db()
            if watched.run.state_choice.is_terminal:
                self.stdout.write(f"Run {watched.run.pk} has ended: {watched.run.stop_reason}")
                return
            if once:
                return
            time.sleep(POLL_S)

    def _finish(self, watched: ObservedFolder) -> None:
        try:
            do_finish_run(watched.user, watched.run)
        except RunTransitionError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Run {watched.run.pk} is being finished.")

    def _run(self, options: dict[str, Any]) -> Run:
        if options["run"] is None:
            return self._started(options)
        run = Run.objects.filter(pk=options["run"]).first()
        if run is None or run.strategy != External.name:
            raise CommandError(f"There is no run {options['run']} of strategy {External.name}.")
        if run.state_choice.is_terminal or run.state == RunState.STOPPING:
            raise CommandError(f"Run {run.pk} is {run.state_choice.label.lower()} and takes no kernels.")
        return run

    def _started(self, options: dict[str, Any]) -> Run:
        problem = Problem.objects.filter(slug=options["problem"] or "").first()
        target = Target.objects.filter(key=options["target"]).first()
        if problem is None or target is None:
            raise CommandError("Give --run, or an existing --problem and --target to start one.")
        user = acting_user(options["user"])
        new = NewRun(
            team=_team(options["team"]),
            problem_version=problem.latest(),
            target=target,
            strategy=External.name,
            title=options["title"] or f"Observed: {options['folder'].resolve().name}",
            budget=Budget(options["evaluations"]),
        )
        try:
            return do_start_run(user, new)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error


def _team(slug: str | None) -> Team:
    found = list(Team.objects.filter(slug=slug) if slug else Team.objects.all()[:2])
    if len(found) != 1:
        raise CommandError("Name the --team.")
    return found[0]
