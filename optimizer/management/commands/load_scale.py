"""`manage.py load_scale`: fill the database as years of use would, for measuring the pages."""

from __future__ import annotations

import datetime as dt
import math
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from optimizer.actions.demo import do_make_default_team
from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.target import do_sync_targets
from optimizer.models import (
    Evaluation,
    Hypothesis,
    Job,
    Kernel,
    KernelParent,
    LlmCall,
    Measurement,
    Membership,
    ProblemVersion,
    Run,
    RunEvent,
    Runner,
    Target,
    Team,
    TeamRole,
    User,
)
from optimizer.synthetic.campaigns import make_settled_campaign
from optimizer.synthetic.copying import copy_rows, next_key, renumber
from optimizer.synthetic.rows import MARK, TIMED_SHARE, WORKER, Family, FamilyMaker, Keys, sizes

TEAM = "synthetic"
BATCH = 200
TABLES: dict[str, type[Model]] = {
    "run": Run, "kernel": Kernel, "evaluation": Evaluation, "hypothesis": Hypothesis, "parent": KernelParent,
    "measurement": Measurement, "event": RunEvent, "call": LlmCall, "job": Job,
}  # fmt: skip
STRATEGIES = ("tune", "scientist", "stark", "islands")
STATES = ("finished", "finished", "finished", "stopped", "failed", "paused")


class Command(BaseCommand):
    """Generate rows that all belong to the team `synthetic` and say that nobody measured them."""

    help = "Fill the database with synthetic runs. Refuses one that holds real runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare how many rows to generate."""
        parser.add_argument("--runs", type=int, default=10_000)
        parser.add_argument("--kernels", type=int, default=100_000, help="in all runs; one has 5,000, one 2,000")
        parser.add_argument("--samples", type=int, default=1_000_000, help="raw times of all kernels")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument(
            "--campaign", type=int, default=250, metavar="PROBLEMS", help="with 4 × 3 runs each; 0: none"
        )
        parser.add_argument("--beside-real-runs", action="store_true", help="allow a database with real runs")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Load everything or, when something fails, nothing."""
        real = Run.objects.exclude(team__slug=TEAM).count()
        if real and not options["beside_real_runs"]:
            raise CommandError(f"This database holds {real} real runs; use another, or --beside-real-runs.")
        if min(options["runs"], options["kernels"]) < 1:
            raise CommandError("At least one run and one kernel.")
        began = time.monotonic()
        with transaction.atomic():
            counts = self._load(options)
        # After the commit: VACUUM cannot run inside a transaction.
        renumber(list(TABLES.values()))
        if options["campaign"]:
            # After the keys are renumbered: these rows take theirs from the sequences.
            with transaction.atomic():
                make_settled_campaign(Team.objects.get(slug=TEAM), options["campaign"], 4, 3, options["seed"])
        told = ", ".join(f"{count:,} × {name}" for name, count in counts.items())
        self.stdout.write(f"{told} in {time.monotonic() - began:.0f} s; all synthetic, team “{TEAM}”.")

    def _load(self, options: dict[str, Any]) -> dict[str, int]:
        samples = max(2, math.ceil(options["samples"] / options["kernels"] / TIMED_SHARE))
        maker = FamilyMaker(
            Keys(**{name: next_key(model) for name, model in TABLES.items()}), samples, options["seed"]
        )
        families = self._families(maker, options)
        counts = dict.fromkeys(TABLES, 0)
        while batch := list(islice(families, BATCH)):
            for name, count in _store(batch).items():
                counts[name] += count
        return counts

    def _families(self, maker: FamilyMaker, options: dict[str, Any]) -> Iterator[Family]:
        blank = _blank_runs(maker)
        for size in sizes(options["runs"], options["kernels"]):
            yield maker.make(next(blank), size)


def _store(families: list[Family]) -> dict[str, int]:
    """Store the rows in the order that foreign keys require; a run's best kernel is set last."""
    runs = [family.run for family in families]
    best = {run.pk: run.best_kernel_id for run in runs}
    for run in runs:
        run.best_kernel_id = None
    counts = {"run": copy_rows(Run, runs)}
    for run in runs:
        run.best_kernel_id = best[run.pk]
    # a hypothesis names its basis and a kernel its hypothesis: foreign keys are checked at the commit
    counts["hypothesis"] = copy_rows(Hypothesis, (row for family in families for row in family.hypotheses))
    counts["kernel"] = copy_rows(Kernel, (row for family in families for row in family.kernels))
    counts["parent"] = copy_rows(KernelParent, (row for family in families for row in family.parents))
    counts["evaluation"] = copy_rows(Evaluation, (row for family in families for row in family.evaluations))
    counts["measurement"] = copy_rows(Measurement, (row for family in families for row in family.measurements))
    counts["event"] = copy_rows(RunEvent, (row for family in families for row in family.events))
    counts["call"] = copy_rows(LlmCall, (row for family in families for row in family.calls))
    counts["job"] = copy_rows(Job, (row for family in families for row in family.jobs))
    Run.objects.bulk_update(runs, ["best_kernel"])
    return counts


def _blank_runs(maker: FamilyMaker) -> Iterator[Run]:
    """Yield runs without an outcome, a few minutes apart, over all targets and strategies."""
    do_sync_targets()
    do_sync_shipped_problems()
    _runner()
    team, people = _team(), list(User.objects.order_by("pk")[:3])
    versions = list(ProblemVersion.objects.only("pk").order_by("pk"))
    targets = list(Target.objects.order_by("pk"))
    number, now = 0, timezone.now()
    while True:
        at = now - dt.timedelta(minutes=7 * number + 60)
        state = maker.rng.choice(STATES)
        yield Run(
            team=team, title=f"{MARK} run {number}", problem_version=versions[number % len(versions)],
            target=targets[number % len(targets)], strategy=STRATEGIES[number % len(STRATEGIES)], seed=number,
            settings={"concurrency": 1 + number % 3}, state=state, stop_reason=f"{MARK}: nothing was run.",
            created_by=people[number % len(people)], created_at=at, started_at=at,
            finished_at=None if state == "paused" else at + dt.timedelta(minutes=30), budget_evaluations=100,
        )  # fmt: skip
        number += 1


def _runner() -> None:
    """Store the runner that all synthetic jobs name. Its heartbeat is long ago, so that no page counts on it."""
    long_ago = timezone.now() - dt.timedelta(days=30)
    names = {"target": Target.objects.get(key="cpu"), "device": f"{MARK} device", "heartbeat_at": long_ago}
    Runner.objects.get_or_create(name=WORKER, defaults=names)


def _team() -> Team:
    """Return the team of all synthetic runs, which the administrators own."""
    do_make_default_team()
    team, _ = Team.objects.get_or_create(slug=TEAM, defaults={"name": f"{MARK} load, measured by nobody"})
    for user in User.objects.filter(is_superuser=True):
        Membership.objects.get_or_create(team=team, user=user, defaults={"role": TeamRole.OWNER})
    if not User.objects.exists():
        raise CommandError("There is no user; start the site once, or create one.")
    return team
