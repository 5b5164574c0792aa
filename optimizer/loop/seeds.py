"""Create the kernels from which a run starts.

These are the torch reference, the problem's seeds that the target can run and, with a warm start, the best kernels of
earlier runs.
"""

from __future__ import annotations

import json

from optimizer.calls.record import Recorded, recorded_in
from optimizer.events.payloads import RunNoted
from optimizer.events.record import record
from optimizer.loop.shared_seeds import begin_or_wait
from optimizer.models import AuthorKind, Kernel, Run
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.earlier_runs import of_the_same_kind, on_the_same_problem
from optimizer.runs.history import problem_of
from optimizer.runs.kernels import add_kernel
from optimizer.runs.languages import languages_for
from optimizer.runs.strategies import settings_of, strategy_of
from optimizer.search.base import Draft
from optimizer.search.machinery.novelty import normalise
from optimizer.search.machinery.seeds import EARLIER_KEY
from optimizer.search.machinery.tuned_source import with_values
from runners.job import Source
from runners.problems.base import Seed

# Kernels of earlier runs with which a warm start begins. Each takes the time of an evaluation, but no budget.
WARM_KERNELS = 3
# Number of earlier runs whose leaders are looked at, best first.
_LOOKED_AT = 30


def add_seeds(run: Run) -> None:
    """Add and evaluate the kernels from which the run starts.

    They do not count against the budget of evaluations: every run on a problem needs the seeds, and a comparison of
    budgets should not depend on how many a problem ships. The runs of a campaign share the measurements of the
    problem's seeds. The report names the kernels of earlier runs.
    """
    languages = languages_for(run.target.key)
    for seed in problem_of(run).seeds:
        if seed.source.language in languages:
            add_kernel(run, _draft(seed), begin=begin_or_wait)
    if not settings_of(run).warm_start:
        return
    recorded = recorded_in(run)
    if recorded.earlier:
        usable = [draft for draft in recorded.earlier[:WARM_KERNELS] if draft.source.language in languages]
        for draft in usable:
            add_kernel(run, draft)
        record(run, RunNoted(text=f"Warm start with kernels of earlier runs from the recording: {len(usable)}."))
    elif _may_take_over(recorded):
        _add_best_of_earlier_runs(run)
        _note_kernel_in_prompts(run)


def _may_take_over(recorded: Recorded) -> bool:
    """Return whether the run may begin with today's best kernels of earlier runs.

    A replay does so only where its recording did and does not hold the kernels, as recordings once did not. Otherwise
    the kernels that it repeats could be among its seeds, and count as duplicates.
    """
    asks = recorded.asks.values()
    return not asks or any(EARLIER_KEY in json.dumps(ask.context) for ask in asks)


def seeds_are_open(run: Run) -> bool:
    """Return True while a seed is not measured, as strategies decide only on measured seeds."""
    return run.kernels.filter(author_kind=AuthorKind.SEED, evaluation__state__in=OPEN_EVALUATION_STATES).exists()


def _add_best_of_earlier_runs(run: Run) -> None:
    known = {normalise(one.as_source().language, one.source) for one in run.kernels.all()}
    taken: list[Kernel] = []
    for kernel in _leaders(run):
        # Only the text is taken over, so the values that tuning found are written into it.
        source = with_values(kernel.as_source())
        text = normalise(source.language, source.text)
        if text not in known and len(taken) < WARM_KERNELS:
            known.add(text)
            taken.append(kernel)
            add_kernel(run, _warm_draft(kernel, source, len(taken)))
    if taken:
        named = ", ".join(f"#{kernel.number} of run {kernel.run_id}" for kernel in taken)
        record(run, RunNoted(text=f"Warm start with the best of earlier runs: {named}."))


def _note_kernel_in_prompts(run: Run) -> None:
    """Record which kernel of another problem the agents read, as nothing else of the run names it."""
    lender = of_the_same_kind(run) if strategy_of(run).needs_model else None
    if lender is not None and lender.best_kernel is not None:
        named = f"#{lender.best_kernel.number} of run {lender.pk}"
        record(run, RunNoted(text=f"Warm start: prompts contain {named}, on another problem."))


def _leaders(run: Run) -> list[Kernel]:
    """Return the best kernels of earlier runs on the same problem, the fastest first."""
    kernels = [one.best_kernel for one in on_the_same_problem(run)[:_LOOKED_AT] if one.best_kernel is not None]
    languages = languages_for(run.target.key)
    return [kernel for kernel in kernels if kernel.as_source().language in languages]


def _warm_draft(kernel: Kernel, source: Source, number: int) -> Draft:
    return Draft(
        key=f"{EARLIER_KEY}{number}",
        source=Source(source.language, source.text, {}, source.flags),
        author_kind=AuthorKind.SEED.value,
        title=f"Best of run {kernel.run_id}: {kernel.title or f'#{kernel.number}'}",
        report=kernel.report,
        meta={"earlier": {"run": kernel.run_id, "number": kernel.number}},
    )


def _draft(seed: Seed) -> Draft:
    return Draft(
        key=f"seed.{seed.name}",
        source=seed.source,
        author_kind=AuthorKind.SEED.value,
        title=seed.title,
        meta={"seed_status": seed.status} if seed.status else {},
    )
