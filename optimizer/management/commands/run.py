"""Start a run on the command line, or continue one with more budget.

manage.py run --problem P --strategy tune --evaluations 40 [--wait] [--json]
manage.py run --continue 12 --evaluations 80
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from optimizer.actions.demo import do_make_default_team
from optimizer.actions.knowledge import do_sync_notes
from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.run import NewRun, do_continue_run, do_start_run, do_stop_run
from optimizer.actions.target import do_sync_targets
from optimizer.models import Problem, ProblemVersion, Run, Target
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget, budget_of
from optimizer.queries.run_table import as_json, closing_table, progress_line
from optimizer.queries.runners import absence_of_runners
from optimizer.reports.plan import plan_table
from optimizer.runs.plan import plan_of
from optimizer.search import STRATEGIES
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import CeleryDispatcher
from runners.job import Objective

POLL_S = 0.5
WORKER_PATIENCE_S = 20.0


class Command(BaseCommand):
    """Start a run on the servers and workers of `manage.py up`."""

    help = "Start an optimisation run, or continue one with more budget; with --wait, follow it to its end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options, which have the same meaning as in the web form."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--problem", help="name of a problem")
        what.add_argument(
            "--continue", dest="run", type=int, metavar="RUN",
            help="number of a run that used up its budget; --evaluations, --minutes, --device-minutes and --usd "
            "replace its limits",
        )  # fmt: skip
        parser.add_argument("--target", default="cpu", help="key of a target (default: cpu)")
        parser.add_argument(
            "--dispatcher", default="celery", choices=list(DISPATCHERS), help="transport to the runners"
        )
        parser.add_argument("--strategy", default="tune", choices=list(STRATEGIES))
        parser.add_argument(
            "--objective", default=Objective.DEVICE.value, choices=[one.value for one in Objective],
            help="time that speedups compare: device (default), or call, which includes the host",
        )  # fmt: skip
        parser.add_argument(
            "--evaluations", type=int,
            help="budget (default: the strategy's own, or with --device-minutes no limit)",
        )  # fmt: skip
        parser.add_argument("--minutes", type=float, help="budget of active minutes")
        parser.add_argument(
            "--device-minutes", type=float, help="budget of device time, used on what is worth most"
        )
        parser.add_argument("--usd", type=Decimal, help="budget of dollars")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE", help="setting of the strategy"
        )
        parser.add_argument(
            "--provider", action="append", default=[], metavar="[ROLE=]NAME[:MODEL]",
            help="provider (inbox, or one of the team), for one role or all",
        )  # fmt: skip
        parser.add_argument("--record", help="answer from this recording (see `manage.py record list`)")
        parser.add_argument("--title", default="")
        parser.add_argument("--wait", action="store_true", help="follow the run and print its table")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Start or continue the run, print its number, and follow it if requested."""
        run = self._start(options) if options["run"] is None else self._continue(options)
        if not options["json"] and _is_scarce(run):
            self.stdout.write(plan_table(plan_of(run)))
        if not options["wait"]:
            done = "Started" if options["run"] is None else "Continued"
            self.stdout.write(json.dumps(as_json(run)) if options["json"] else f"{done} {run} (number {run.pk}).")
            return
        self._follow(run, quiet=options["json"])
        run.refresh_from_db()
        self.stdout.write(json.dumps(as_json(run)) if options["json"] else closing_table(run))

    def _start(self, options: dict[str, Any]) -> Run:
        # A fresh installation has no rows yet, and the command should work without `manage.py up` before it.
        do_sync_targets()
        do_sync_notes()
        do_sync_shipped_problems()
        target = Target.objects.filter(key=options["target"]).first()
        if target is None:
            known = ", ".join(Target.objects.values_list("key", flat=True))
            raise CommandError(f"There is no target {options['target']!r}; known are {known}.")
        new = NewRun(
            team=do_make_default_team(),
            problem_version=_version(options["problem"]),
            target=target,
            strategy=options["strategy"],
            dispatcher=options["dispatcher"],
            objective=options["objective"],
            settings=_settings(options["set"]),
            providers=_providers(options["provider"], options["record"]),
            title=options["title"],
            budget=_budget(options),
            seed=options["seed"],
        )
        try:
            return do_start_run(None, new)
        except ValidationError as error:
            raise CommandError(_faults(error)) from error

    def _continue(self, options: dict[str, Any]) -> Run:
        run = Run.objects.filter(pk=options["run"]).first()
        if run is None:
            raise CommandError(f"There is no run {options['run']}.")
        kinds = ("evaluations", "minutes", "usd", "device_minutes")
        given = {kind: options[kind] for kind in kinds if options[kind] is not None}
        try:
            return do_continue_run(None, run, replace(budget_of(run), **given))
        except RunTransitionError as error:
            raise CommandError(f"Run {run.pk} was not continued: {error}.") from error
        except ValidationError as error:
            raise CommandError(_faults(error)) from error

    def _follow(self, run: Run, *, quiet: bool) -> None:
        """Print progress until the run ends or pauses. Ctrl-C stops the run."""
        started, warned = time.monotonic(), quiet
        # A progress line with carriage returns would spoil a log file.
        live = sys.stderr.isatty() and not quiet
        try:
            # A paused run may stay paused for days, so the command does not wait for it.
            while not run.state_choice.is_terminal and run.state != "paused":
                if not warned and time.monotonic() - started > WORKER_PATIENCE_S:
                    warned = True
                    self._warn_without_worker(run)
                if live:
                    self.stderr.write(f"\r\x1b[K{progress_line(run)}", ending="")
                    self.stderr.flush()
                time.sleep(POLL_S)
                run.refresh_from_db()
        except KeyboardInterrupt:
            # Without anybody who watches, the run would go on spending its budget.
            do_stop_run(None, run)
            raise CommandError(f"Run {run.pk} is being stopped.") from None
        finally:
            if live:
                self.stderr.write("\r\x1b[K", ending="")

    def _warn_without_worker(self, run: Run) -> None:
        if absence := absence_of_runners(run.target.key, run.dispatcher):
            self.stderr.write(f"{absence}\nOr start everything on this machine: {settings.SITE_COMMAND} up")


def _budget(options: dict[str, Any]) -> Budget:
    """Return the budget of a new run."""
    device_minutes = options["device_minutes"]
    # A strategy's own number of evaluations would end a run of cheap ones long before its device minutes are used.
    usual = STRATEGIES[options["strategy"]].default_evaluations if device_minutes is None else None
    evaluations = options["evaluations"] or usual
    return Budget(evaluations, options["minutes"], options["usd"], device_minutes=device_minutes)


def _faults(error: ValidationError) -> str:
    if not hasattr(error, "error_dict"):
        return "\n".join(error.messages)
    return "\n".join(f"{name}: {'; '.join(texts)}" for name, texts in error.message_dict.items())


def _is_scarce(run: Run) -> bool:
    """Return whether the run says in advance what it will send: its device time is limited, or others wait for it."""
    return run.budget_device_minutes is not None or run.dispatcher != CeleryDispatcher.name


def _version(slug: str) -> ProblemVersion:
    problem = Problem.objects.filter(slug=slug).first()
    if problem is None:
        known = ", ".join(Problem.objects.order_by("slug").values_list("slug", flat=True))
        raise CommandError(f"There is no problem {slug!r}; known are {known}.")
    return problem.latest()


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Parse `NAME=VALUE` pairs; a value is read as JSON where it is JSON, as text otherwise."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise CommandError(f"--set {pair}: write NAME=VALUE.")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _providers(choices: list[str], record: str | None) -> dict[str, Any]:
    """Return `Run.providers` from `[ROLE=]NAME[:MODEL]` choices; a recording answers for all roles."""
    providers: dict[str, Any] = {"default": {"provider": "replay", "record": record}} if record else {}
    for choice in choices:
        # `rpartition` leaves the whole choice in `name` when it names no role.
        role, equals, name = choice.rpartition("=")
        provider, _, model = name.partition(":")
        providers[role if equals else "default"] = {"provider": provider} | ({"model": model} if model else {})
    return providers
