"""Run the same campaign twice on the whole stack, the second time under faults, and compare what it found.

Workers, timer, web server, PostgreSQL and Redis are killed, connections cut and messages lost, while the campaign
searches and settles. Both must find the same, lose nothing and count nothing twice; and while both configurations have
work, each must have had its half of the device to within 5 %, or to within the runs that go on at once while
those are more than that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from django.db.models import Max, Sum

from benchmarks.installation import provenance
from kernelsci_site.services.var import Var
from optimizer.actions.campaign import NewCampaign, do_start_campaign
from optimizer.models import (
    AuthorKind,
    Campaign,
    CampaignTiming,
    Evaluation,
    EvaluationPurpose,
    KernelParent,
    Run,
    Team,
)
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration
from tests.campaigns import new_campaign, tuned
from tests.chaos.faults import FAULTS
from tests.chaos.invariants import INVARIANTS
from tests.chaos.kernelbench import compared, make_kernelbench_suite, record_answers
from tests.chaos.world import World, ask, world

# Faults that a campaign can meet; the spool and other targets have no part in it.
STRIKING = (
    "kill -9 of a bench worker at work",
    "kill -9 of the web server",
    "kill -9 of Redis",
    "kill -9 of the timer",
    "Redis wiped",
    "kill -9 of the process that measures",
    "all database connections cut",
    "20 duplicate messages",
    "kill -9 of PostgreSQL",
    "bench worker stopped beyond its lease",
    "result delivered twice",
    "late result under an old fence",
)
EVERY_S = 4.0
PATIENCE_S = 3600.0
MOST_UNFAIR = 0.05


@dataclass
class Course:
    """Hold how one campaign went: the faults that struck, and looks at the device time of the configurations."""

    campaign: Campaign
    faults: list[str] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    @property
    def unfair(self) -> list[Look]:
        """Return the looks at which one configuration was ahead by more than is allowed."""
        return [
            look
            for look in self.looks
            if look.lead_s > max(MOST_UNFAIR * look.used_s, self.campaign.parallel_runs * look.longest_s)
        ]


@dataclass(frozen=True)
class Look:
    """Hold device times while both configurations have runs to start: the lead of one, the sum, the longest run.

    A run is the least that can be shared, and so many go on at once, so a lead of those is no unfairness.
    """

    lead_s: float
    used_s: float
    longest_s: float

    @property
    def share(self) -> float:
        """Return the lead as a share of what was used."""
        return self.lead_s / self.used_s

    def __str__(self) -> str:
        of = f"{self.share:.1%}; a run takes up to {self.longest_s:.1f} s"
        return f"{self.lead_s:.1f} s of {self.used_s:.1f} s ({of})"


def rehearse(var: Var, options: argparse.Namespace) -> int:
    """Run both campaigns and print what differs; 1 where something is wrong."""
    print(provenance(options.seed), flush=True)
    with world(var, options.seed, bench=options.bench, port=options.port) as stage:
        planned = plan(var, options)
        calm = follow(stage, (), planned)
        print(f"undisturbed: {told(calm)}", flush=True)
        struck = follow(stage, STRIKING, planned)
        print(f"under faults: {told(struck)}", flush=True)
        wrong = differences(outcome(calm.campaign), outcome(struck.campaign)) + doubled(struck.campaign)
        wrong += [f"{name}: {found}" for name, look in INVARIANTS.items() for found in look()]
        for name, course in (("undisturbed", calm), ("under faults", struck)):
            wrong += [f"{name}: one configuration leads by {look}" for look in course.unfair[:1]]
            wrong += [f"{name}: shares not looked at"] if not course.looks else []
    wrong += [] if struck.faults else ["no fault struck"]
    print("\n".join(wrong) if wrong else "same results, nothing lost, nothing doubled")
    return int(bool(wrong))


def told(course: Course) -> str:
    """Return how large the campaign was, what struck it, and how evenly it shared the device."""
    kinds = len(set(course.faults))
    counts = f"{course.campaign.cells.count()} runs, {course.campaign.timings.count()} timings"
    return f"{counts}, {len(course.faults)} faults of {kinds} kinds, {shared(course.looks)}"


def shared(looks: list[Look]) -> str:
    """Return how evenly the device was shared."""
    if not looks:
        return "shares not looked at"
    most = max(looks, key=lambda look: look.lead_s)
    beyond = [look.used_s for look in looks if look.share > MOST_UNFAIR]
    since = f"at most {MOST_UNFAIR:.0%} after {max(beyond, default=0.0):.1f} s"
    return f"{len(looks)} looks at the shares: the largest lead was {most}, {since}, the last {looks[-1]}"


def plan(var: Var, options: argparse.Namespace) -> NewCampaign:
    """Describe the campaign that is run twice."""
    team = Team.objects.get()
    planned: dict[str, Any] = {"configurations": [tuned("long", 3), tuned("short", 1)], "parallel_runs": 2}
    if options.kernelbench is not None:
        suite = make_kernelbench_suite(options.kernelbench, var.folder("kernelbench"))
        record_answers(team, suite)
        # One run more than there are workers, so that jobs wait for each other.
        planned = {"configurations": compared(), "suite": suite, "parallel_runs": options.bench + 1}
    return new_campaign(team, seeds=range(options.seeds), **planned)


def follow(stage: World, faults: Sequence[str], planned: NewCampaign) -> Course:
    """Start the campaign and wait for its end while faults strike in turn."""
    course = Course(do_start_campaign(None, planned))
    deadline, next_fault, coming = time.monotonic() + PATIENCE_S, time.monotonic() + EVERY_S, cycle(faults)
    while not ask(lambda: _has_ended(course.campaign), otherwise=False):
        if time.monotonic() > deadline:
            sys.exit(f"the campaign is still {course.campaign.state}")
        stage.tick()
        ask(lambda: _look(course), otherwise=None)
        if faults and time.monotonic() >= next_fault:
            next_fault = time.monotonic() + EVERY_S
            name = next(coming)
            course.faults += [name] if ask(lambda name=name: FAULTS[name](stage), otherwise=False) else []  # type: ignore[misc]
    return course


def outcome(campaign: Campaign) -> dict[tuple[str, str, int], Any]:
    """Return what was found, by problem, configuration and seed: the winner, its settled figures, what it cost.

    The first measurements of seeds are left out of the device time: which run of a problem makes them depends on who
    begins first.
    """
    names = {one.pk: one.name for one in campaign.configurations.all()}
    searched = Evaluation.objects.filter(
        kernel__run__campaign_cell__campaign=campaign, purpose=EvaluationPurpose.SEARCH
    )
    own = searched.exclude(first_of__author_kind=AuthorKind.SEED).order_by().values("kernel__run")
    used = own.annotate(used=Sum("device_s")).values_list("kernel__run", "used")
    device_s = {run: round(seconds, 6) for run, seconds in used}
    return {
        (cell.name, names[cell.configuration], cell.seed): (
            cell.state, cell.evaluations, device_s.get(cell.run or 0), cell.why, cell.is_settled,
            sorted((one.baseline, one.kernel, one.status, one.speedup) for one in cell.timed.values()),
            _kernels_of(cell.run),
        )
        for cell in results_of(campaign).cells
    }  # fmt: skip


def _kernels_of(run_id: int | None) -> list[tuple[str, str, str, str | None]]:
    """Return the run's kernels with their outcomes and first parents; a campaign that has ended has a run for each
    cell."""
    assert run_id is not None
    links = KernelParent.objects.filter(kernel__run=run_id, rank=0)
    parents = dict(links.values_list("kernel__key", "parent__key"))
    rows = Run.objects.get(pk=run_id).kernels.values_list("key", "content_hash", "evaluation__status")
    return [(*row, parents.get(row[0])) for row in rows.order_by("number")]


def differences(calm: dict[Any, Any], struck: dict[Any, Any]) -> list[str]:
    """Name every place in which the two campaigns differ."""
    return [f"{place}: {calm.get(place)} undisturbed, {struck.get(place)} under faults"
            for place in sorted(calm.keys() | struck.keys()) if calm.get(place) != struck.get(place)]  # fmt: skip


def doubled(campaign: Campaign) -> list[str]:
    """Name runs that no cell knows, and winners that were not timed exactly once beside every baseline."""
    strays = Run.objects.filter(title__startswith=campaign.title, campaign_cell=None)
    timings = CampaignTiming.objects.filter(campaign=campaign, evaluation=None)
    return [f"run {run.pk} belongs to no cell" for run in strays] + [f"{one} was not timed" for one in timings]


def _has_ended(campaign: Campaign) -> bool:
    campaign.refresh_from_db()
    return campaign.state_choice.is_terminal


def _look(course: Course) -> None:
    """Note the shares while both configurations still have runs to start."""
    campaign = course.campaign
    waiting = set(campaign.cells.filter(run=None).values_list("configuration", flat=True))
    used = [one.device_s for one in spent_by_configuration(campaign).values()]
    longest_s = campaign.cells.aggregate(longest=Max("run__spent_device_s"))["longest"] or 0.0
    if len(waiting) == len(used) and min(used) > 0.0:
        course.looks.append(Look(max(used) - min(used), sum(used), longest_s))
