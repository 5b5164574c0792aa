"""Find what earlier runs of a team have to offer to a new one."""

from __future__ import annotations

from django.db.models import Case, F, Q, QuerySet, Value, When

from optimizer.knowledge.kinds import kinds_of
from optimizer.models import AuthorKind, CampaignCell, Problem, Run

# Kinds that nearly every problem has; sharing one of them says little.
_GENERAL_KINDS = frozenset({"reduction", "elementwise"})
# Runs on other problems that are compared, best first.
_LOOKED_AT = 100
# Runs whose measurements are read, newest first.
_NEWEST = 100


def earlier_runs(run: Run) -> QuerySet[Run]:
    """Return the team's other runs on the same target that everybody who sees this run may see, with a leader.

    A private run gives its kernels to nobody but the private runs of the same person. The runs with the largest lower
    bound of their speedup come first. Those that compare with another baseline come last: their kernels are as good,
    but their speedups cannot be ranked with the others. Runs that optimise another time are left out, and so are those
    led by a seed, which every run has.
    """
    led = shared_with(run).filter(target=run.target_id).exclude(best_kernel=None)
    led = led.exclude(best_kernel__author_kind=AuthorKind.SEED)
    order = (_is_compared_otherwise(run), F("best_speedup_low").desc(nulls_last=True), "-pk")
    return led.order_by(*order).select_related("best_kernel")


def _is_compared_otherwise(run: Run) -> Case:
    """Return an expression that is 1 for runs with another baseline than this one's, and 0 for the others."""
    return Case(When(baseline=run.baseline, then=Value(0)), default=Value(1))


def shared_with(run: Run) -> QuerySet[Run]:
    """Return the team's other runs for the same time whose results this run may use.

    A private run shares with nobody but the private runs of the same person, and the runs of a campaign not with each
    other.
    """
    like = Run.objects.filter(shared(run), team=run.team_id, objective=run.objective)
    return like.exclude(pk__in=others_of_its_campaign(run)).exclude(pk=run.pk)


def newest_ids(runs: QuerySet[Run]) -> list[int]:
    """Return the ids of the newest of some runs.

    They are fetched for a query of their own: in one query PostgreSQL reads the kernels of all runs there are.
    """
    return list(runs.order_by("-pk").values_list("pk", flat=True)[:_NEWEST])


def shared(run: Run) -> Q:
    """Return the condition on runs that everybody who sees this run may see as well."""
    shown = Q(is_private=False)
    if run.is_private and run.created_by_id is not None:
        shown |= Q(created_by=run.created_by_id)
    return shown


def others_of_its_campaign(run: Run) -> QuerySet[CampaignCell, int | None]:
    """Return the ids of the other runs of the run's campaign; none for a run outside campaigns.

    What one of them has found must not reach another, or the campaign would compare nothing.
    """
    others = CampaignCell.objects.filter(campaign__cells__run=run, run__isnull=False).exclude(run=run)
    return others.order_by().values_list("run_id", flat=True)


def on_the_same_problem(run: Run) -> QuerySet[Run]:
    """Return the earlier runs on the problem of this one, in any version."""
    return earlier_runs(run).filter(problem_version__problem=run.problem_version.problem_id)


def of_the_same_kind(run: Run) -> Run | None:
    """Return the earlier run on another problem that has most kinds of work in common with this one's, or None.

    Only runs that had ended before this one began are looked at, so that all prompts of a run name the same.
    """
    mine = kinds_of_problem(run.problem_version.problem)
    others = earlier_runs(run).exclude(problem_version__problem=run.problem_version.problem_id)
    ended = others.filter(finished_at__lt=run.created_at, best_speedup_low__gt=1)
    # Every prompt asks, and only one of these kernels is read.
    light = ended.select_related("problem_version__problem").defer("best_kernel__source", "problem_version__bundle")
    shared = [
        (len(mine & kinds_of_problem(one.problem_version.problem) - _GENERAL_KINDS), one)
        for one in light[:_LOOKED_AT]
    ]
    # Of equals the first: it has the largest speedup.
    count, found = max(shared, key=lambda pair: pair[0], default=(0, None))
    return found if count else None


def kinds_of_problem(problem: Problem) -> frozenset[str]:
    """Return the kinds of work that a problem's names tell."""
    return kinds_of(f"{problem.title}\n{problem.slug.replace('_', ' ')}")
