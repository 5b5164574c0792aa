"""Settle a campaign: time all winners of a problem together, each beside every baseline, in cold processes.

During the search runs are timed hours apart. At the end, problem by problem in random order, the timings of all
winners are queued in random order, one problem after the other and each for one worker, so that what is compared meets
one state of one machine. Only these figures count, and only once all timings of a problem have ended. A problem is
timed again as a whole, after all others, where a timing gave no measurement or where its worker was lost on the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Coalesce

from optimizer.models import (
    Campaign,
    CampaignCell,
    CampaignTiming,
    EvaluationPurpose,
    Kernel,
    Run,
)
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.campaign_spending import settling_evaluations
from optimizer.queries.campaign_steps import is_own
from optimizer.queries.campaign_timings import problems_to_repeat
from optimizer.runs.dispatch import dispatch_again
from optimizer.runs.locking import lock_run
from optimizer.search.machinery.seeds import EARLIER_KEY
from runners.dispatch.spool import SpoolDispatcher
from runners.job import Baseline


def plan(campaign: Campaign) -> None:
    """Store which timings the settling consists of, in their random order. Call under the campaign's lock.

    A campaign that was continued has timings already. They stay for each problem whose winners are the same as then.
    """
    by_problem: dict[int, list[tuple[CampaignCell, Kernel]]] = defaultdict(list)
    cells = campaign.cells.filter(is_closed=True).select_related("run__best_kernel").order_by("order")
    for cell in cells:
        if cell.run is not None and (kernel := winner_of(cell.run)) is not None:
            by_problem[cell.problem_version_id].append((cell, kernel))
    kept = _timed_as_won(campaign, by_problem)
    campaign.timings.exclude(cell__problem_version__in=kept).delete()
    start = campaign.timings.aggregate(next=Coalesce(Max("order") + 1, 0))["next"]
    rng = np.random.default_rng([campaign.order_seed, 1])
    rows: list[CampaignTiming] = []
    for problem in rng.permutation(sorted(by_problem.keys() - kept)):
        rows += _shuffled(campaign, by_problem[int(problem)], rng, start + len(rows))
    CampaignTiming.objects.bulk_create(rows, batch_size=1000)


def _timed_as_won(campaign: Campaign, winners: Mapping[int, Sequence[tuple[CampaignCell, Kernel]]]) -> set[int]:
    """Return the problems, by version id, whose timings are those of exactly these winners."""
    timed: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for problem, *pair in campaign.timings.values_list("cell__problem_version", "cell", "kernel"):
        timed[problem].add((pair[0], pair[1]))
    return {
        problem for problem, pairs in winners.items()
        if timed[problem] == {(cell.pk, kernel.pk) for cell, kernel in pairs}
    }  # fmt: skip


def winner_of(run: Run) -> Kernel | None:
    """Return the best kernel that the run made itself or took over by its warm start; None without a correct one."""
    best = run.best_kernel
    if best is not None and is_own(best.author_kind, best.key):
        return best
    own = run.kernels.rankable().filter(~Q(author_kind="seed") | Q(key__startswith=EARLIER_KEY))
    return own.best_first().first()


def settle(campaign: Campaign) -> bool:
    """Queue the next timings once those before have ended. Return True when all have.

    The first timing of a problem is queued alone: the others wait for the worker that took it. For a spool, all
    timings are queued at once, because a person may have to carry each exchange to the device and back. Call under the
    campaign's lock.
    """
    if open_timings(campaign).exists():
        return False
    waiting = campaign.timings.filter(evaluation=None).order_by("order").select_related("kernel__run", "cell")
    if not waiting.exists() and not _repeat(campaign):
        return True
    begun = settling_evaluations(campaign).filter(created_at__gte=campaign.settling_at)
    if campaign.dispatcher == SpoolDispatcher.name and not begun.exists():
        _queue(waiting)
        return False
    problem = waiting[0].cell.problem_version_id
    worker = _worker_of(campaign, problem)
    together = waiting.filter(cell__problem_version=problem)
    _queue(together if worker is not None else together[:1], worker or "")
    return False


def _queue(timings: Iterable[CampaignTiming], worker: str = "") -> None:
    for timing in timings:
        run = lock_run(timing.kernel.run_id)
        timing.evaluation = dispatch_again(
            run, timing.kernel, EvaluationPurpose.SETTLING, Baseline(timing.baseline), worker
        )
        timing.save(update_fields=["evaluation"])


def open_timings(campaign: Campaign) -> QuerySet[CampaignTiming]:
    """Return the timings that have been queued and have not ended."""
    return campaign.timings.filter(evaluation__state__in=OPEN_EVALUATION_STATES)


def _worker_of(campaign: Campaign, problem: int) -> str | None:
    """Return the worker that has ended the problem's first timing, or None before that."""
    begun = campaign.timings.filter(cell__problem_version=problem, evaluation__isnull=False)
    return begun.order_by("order").values_list("evaluation__job__worker", flat=True).first()


def _repeat(campaign: Campaign) -> bool:
    """Let every problem that is to be timed again wait for its timings. Return whether there is any."""
    problems = problems_to_repeat(campaign)
    # The evaluations remain as rows: their device time was spent, and they tell how often the problem was timed.
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
