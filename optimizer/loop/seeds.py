"""Create the kernels from which a run starts: the torch reference, and the problem's seeds that the target can run."""

from __future__ import annotations

from optimizer.models import AuthorKind, EvaluationState, Run
from optimizer.runs.history import problem_of
from optimizer.runs.kernels import add_kernel
from optimizer.runs.languages import languages_for
from optimizer.search.base import Draft
from runners.problems.base import Seed


def add_seeds(run: Run) -> None:
    """Add and evaluate the seeds.

    They do not count against the budget of evaluations: every run on a problem needs them, and a comparison of
    budgets should not depend on how many seeds a problem ships.
    """
    languages = languages_for(run.target.key)
    for seed in problem_of(run).seeds:
        if seed.source.language in languages:
            add_kernel(run, _draft(seed))


def seeds_are_open(run: Run) -> bool:
    """Return True while a seed is not measured, as strategies decide only on measured seeds."""
    open_states = [EvaluationState.QUEUED, EvaluationState.RUNNING]
    return run.kernels.filter(author_kind=AuthorKind.SEED, evaluation__state__in=open_states).exists()


def _draft(seed: Seed) -> Draft:
    return Draft(
        key=f"seed.{seed.name}",
        source=seed.source,
        author_kind=AuthorKind.SEED.value,
        title=seed.title,
        meta={"seed_status": seed.status} if seed.status else {},
    )
