"""Run the same campaign twice on the whole stack, the second time under faults, and compare what it found.

Workers, timer, web server, PostgreSQL and Redis are killed, connections cut and messages lost, while the campaign
searches and settles. Both must find the same, lose nothing and count nothing twice; and while both configurations have
work, each must have had its half of the device to within 5 %, or to within the runs that go on at once while
those are more than that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from django.db.models import Max

from benchmarks.installation import provenance
from kernelsci_site.services.var import Var
from optimizer.models import Campaign, CampaignTiming, Run, Team
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration
from tests.campaigns import make_campaign, make_suite, tuned
from tests.chaos.faults import FAULTS
from tests.chaos.invariants import INVARIANTS
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
PLACES = 2
SEEDS = 12


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
            look for look in self.looks if look.lead_s > max(MOST_UNFAIR * look.used_s, PLACES * look.longest_s)
        ]


@dataclass(frozen=True)
class Look:
    """Hold device times while both configurations have runs to start: the lead of one, the sum, the longest run.

    A run is the least that can be shared, and so many go on at once, so a lead of those is no unfairness.
    """

    lead_s: float
    used_s: float
    longest_s: float

    def __str__(self) -> str:
        share = self.lead_s / self.used_s
        return f"{self.lead_s:.1f} s of {self.used_s:.1f} s ({share:.1%}; a run takes up to {self.longest_s:.1f} s)"


def rehearse(var: Var, port: int, seed: int, seeds: int = SEEDS) -> int:
    """Run both campaigns and print what differs; 1 where something is wrong."""
    print(provenance(seed))
    with world(var, seed, bench=2, port=port) as stage:
        calm = follow(stage, (), seeds)
        print(f"undisturbed: {told(calm)}", flush=True)
        struck = follow(stage, STRIKING, seeds)
        print(f"under faults: {told(struck)}", flush=True)
        wrong = differences(outcome(calm.campaign), outcome(struck.campaign)) + doubled(struck.campaign)
        wrong += [f"{name}: {found}" for name, look in INVARIANTS.items() for found in look()]
        for name, course in (("undisturbed", calm), ("under faults", struck)):
            wrong += [f"{name}: one configuration leads by {look}" for look in course.unfair[:1]]
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
    return f"{len(looks)} looks at the shares: the largest lead was {most}, the last {looks[-1]}"


def follow(stage: World, faults: Sequence[str], seeds: int) -> Course:
    """Start the campaign and wait for its end while faults strike in turn."""
    team = Team.objects.get()
    compared = [tuned("long", 3), tuned("short", 1)]
    course = Course(
        make_campaign(team, configurations=compared, seeds=range(seeds), parallel_runs=PLACES, suite=_suite())
    )
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
    """Return what was found, by problem, configuration and seed: the winner, its settled figures, what it cost."""
    names = {one.pk: one.name for one in campaign.configurations.all()}
    return {
        (cell.name, names[cell.configuration], cell.seed): (
            cell.state, cell.evaluations, cell.why, cell.is_settled,
            sorted((one.baseline, one.kernel, one.status, one.speedup) for one in cell.timed.values()),
            _kernels_of(cell.run),
        )
        for cell in results_of(campaign).cells
    }  # fmt: skip


def _kernels_of(run_id: int | None) -> list[str]:
    """Return the hashes of the run's kernels in their order; a campaign that has ended has a run for each cell."""
    assert run_id is not None
    kernels = Run.objects.get(pk=run_id).kernels
    return list(kernels.order_by("number").values_list("content_hash", flat=True))


def differences(calm: dict[Any, Any], struck: dict[Any, Any]) -> list[str]:
    """Name every place in which the two campaigns differ."""
    return [f"{place}: {calm.get(place)} undisturbed, {struck.get(place)} under faults"
            for place in sorted(calm.keys() | struck.keys()) if calm.get(place) != struck.get(place)]  # fmt: skip


def doubled(campaign: Campaign) -> list[str]:
    """Name runs that no cell knows, and winners that were not timed exactly once beside every baseline."""
    strays = Run.objects.filter(title__startswith=campaign.title, campaign_cell=None)
    timings = CampaignTiming.objects.filter(campaign=campaign, evaluation=None)
    return [f"run {run.pk} belongs to no cell" for run in strays] + [f"{one} was not timed" for one in timings]


def _suite() -> Any:
    from optimizer.models import Suite

    return Suite.objects.first() or make_suite()


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
