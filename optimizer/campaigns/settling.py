"""Settle a campaign: time all winners of a problem together, each beside every baseline, in cold processes.

During the search runs are timed hours apart. At the end, problem by problem in random order, the timings of all
winners are queued in random order, one problem after the other, so that what is compared meets one state of the
machine. Only these figures count, and only once all timings of a problem have ended. A problem of which one timing gave
no measurement, because the machine or the baseline failed, is timed once more as a whole, after all others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from django.db.models import Q, QuerySet

from optimizer.models import (
    Campaign,
    CampaignCell,
    CampaignTiming,
    EvaluationPurpose,
    EvaluationState,
    Kernel,
    Run,
)
from optimizer.queries.campaign_steps import is_own
from optimizer.queries.campaign_timings import to_repeat
from optimizer.runs.dispatch import dispatch_again
from optimizer.runs.locking import lock_run
from runners.job import Baseline

_OPEN = (EvaluationState.QUEUED, EvaluationState.RUNNING)


def plan(campaign: Campaign) -> None:
    """Store which timings the settling consists of, in their random order. Call under the campaign's lock."""
    by_problem: dict[int, list[tuple[CampaignCell, Kernel]]] = defaultdict(list)
    cells = campaign.cells.filter(is_closed=True).select_related("run__best_kernel").order_by("order")
    for cell in cells:
        if cell.run is not None and (kernel := winner_of(cell.run)) is not None:
            by_problem[cell.problem_version_id].append((cell, kernel))
    rng = np.random.default_rng([campaign.order_seed, 1])
    rows: list[CampaignTiming] = []
    for problem in rng.permutation(sorted(by_problem)):
        rows += _shuffled(campaign, by_problem[int(problem)], rng, len(rows))
    CampaignTiming.objects.bulk_create(rows, batch_size=1000)


def winner_of(run: Run) -> Kernel | None:
    """Return the best kernel that the run made itself or took over by its warm start; None without a correct one."""
    best = run.best_kernel
    if best is not None and is_own(best.author_kind, best.key):
        return best
    own = run.kernels.rankable().filter(~Q(author_kind="seed") | Q(key__startswith="seed.earlier"))
    return own.best_first().first()


def settle(campaign: Campaign) -> bool:
    """Queue the timings of the next problem once those before have ended. Return True when all have.

    Call under the campaign's lock.
    """
    if open_timings(campaign).exists():
        return False
    waiting = campaign.timings.filter(evaluation=None).order_by("order")
    if not waiting.exists() and not _repeat_unmeasured(campaign):
        return True
    together = waiting.filter(cell__problem_version=waiting[0].cell.problem_version_id)
    for timing in together.select_related("kernel__run", "cell"):
        run = lock_run(timing.kernel.run_id)
        timing.evaluation = dispatch_again(
            run, timing.kernel, EvaluationPurpose.SETTLING, Baseline(timing.baseline)
        )
        timing.save(update_fields=["evaluation"])
    return False


def open_timings(campaign: Campaign) -> QuerySet[CampaignTiming]:
    """Return the timings that have been queued and have not ended."""
    return campaign.timings.filter(evaluation__state__in=_OPEN)


def _repeat_unmeasured(campaign: Campaign) -> bool:
    """Let every problem that lacks a measurement wait for its timings again, once. Return whether any does."""
    problems = set(to_repeat(campaign.timings.all()).values_list("cell__problem_version_id", flat=True))
    # The evaluations remain as rows: their device time was spent, and they tell that the problem was timed before.
    return campaign.timings.filter(cell__problem_version__in=problems).update(evaluation=None) > 0


def _shuffled(
    campaign: Campaign, winners: Sequence[tuple[CampaignCell, Kernel]], rng: np.random.Generator, start: int
) -> list[CampaignTiming]:
    pairs = [(cell, kernel, baseline) for cell, kernel in winners for baseline in campaign.baselines]
    return [
        CampaignTiming(
            campaign=campaign, cell=pairs[index][0], kernel=pairs[index][1], baseline=pairs[index][2], order=start + n
        )
        for n, index in enumerate(rng.permutation(len(pairs)))
    ]  # fmt: skip
