"""Estimate before it starts what a run will take, from what similar runs took.

Each past run gives rates: minutes, dollars and tokens per evaluation that counted. Seeds, confirmations, failed calls
and waiting for the model are part of these rates, because they will happen again. The range spans the 10 % and 90 %
quantiles of the rates, times the planned evaluations; with few runs that is nearly minimum and maximum. Budgets cap
it. Without similar runs the figures are None: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from django.db.models import Exists, OuterRef, QuerySet

from optimizer.models import CallState, LlmCall, Problem, Run, RunState, Target, User
from optimizer.models.provider import BUILT_IN
from optimizer.queries.budgets import Budget

# Use only the newest runs, because machines, prices and prompts change.
MOST_RUNS = 20
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True)
class PastRun:
    """Hold what an ended run took. `usd` is None where the price of a call was unknown."""

    evaluations: int
    minutes: float
    device_minutes: float
    tokens: int
    usd: float | None


@dataclass(frozen=True)
class Range:
    """Hold the limits of a range, in the unit that the field of `Estimate` names."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """Hold what a run is expected to take.

    `based_on` counts the runs behind the figures and `likeness` says in which way they resemble the planned run.
    Figures are None where nothing is known.
    """

    based_on: int
    likeness: str
    evaluations: int | None = None
    minutes: Range | None = None
    device_minutes: Range | None = None
    usd: Range | None = None
    tokens: Range | None = None


def estimate_run(
    problem: Problem,
    target: Target,
    strategy: str,
    budget: Budget,
    *,
    seen_by: User,
    providers: Mapping[str, Any] | None = None,
) -> Estimate:
    """Estimate from past runs that the person may see, preferring the most similar group that is not empty.

    The groups are: same problem, target, strategy and models (only where `providers` is given, in the form of
    `Run.providers`); same problem, target and strategy; same target and strategy; for device time only, same problem
    and target; for device time only, the target's other runs.
    """
    ended = Run.objects.visible_to(seen_by).filter(target=target, strategy=strategy, spent_evaluations__gt=0)
    ended = ended.filter(state__in=[state for state in RunState if state.is_terminal])
    same = _newest(ended.filter(problem_version__problem=problem))
    alike = [run for run in same if providers is not None and _models(run.providers) == _models(providers)]
    # Models differ in speed and price by orders of magnitude, so runs with the same models are preferred.
    if alike:
        return estimate(_past(alike), budget, "same problem, target, strategy and models")
    if same:
        return estimate(_past(same), budget, "same problem, target and strategy")
    if others := _newest(ended):
        return estimate(_past(others), budget, "same target and strategy, other problems")
    return _by_other_strategies(problem, target, budget, seen_by)


def _by_other_strategies(problem: Problem, target: Target, budget: Budget, seen_by: User) -> Estimate:
    """Estimate device time alone from the problem's other runs: an evaluation takes what it takes, whoever asks."""
    runs = Run.objects.visible_to(seen_by).filter(problem_version__problem=problem, target=target)
    ended = runs.filter(state__in=[state for state in RunState if state.is_terminal], spent_evaluations__gt=0)
    likeness, found = "same problem and target, other strategies", _newest(ended)
    if not found:
        # The first run of a problem: other problems on this hardware give at least the order of magnitude.
        every = Run.objects.visible_to(seen_by).filter(target=target, spent_evaluations__gt=0)
        likeness, found = "same target, other problems and strategies", _newest(every)
    return replace(estimate(_past(found), budget, likeness), minutes=None, usd=None, tokens=None)


def estimate(past: Sequence[PastRun], budget: Budget, likeness: str = "") -> Estimate:
    """Compute the estimate from past runs and a budget, without reading the database."""
    if not past:
        return Estimate(based_on=0, likeness="")
    minutes = [run.minutes / run.evaluations for run in past]
    planned = _planned(past, budget, float(np.median(minutes)))
    return Estimate(
        based_on=len(past),
        likeness=likeness,
        evaluations=planned,
        minutes=_range(minutes, planned, budget.minutes),
        device_minutes=_range(
            [run.device_minutes / run.evaluations for run in past], planned, budget.device_minutes
        ),
        # Runs with an unknown price are left out rather than counted as free.
        usd=_range([run.usd / run.evaluations for run in past if run.usd is not None], planned, budget.usd),
        tokens=_range([run.tokens / run.evaluations for run in past], planned, budget.tokens),
    )


def _planned(past: Sequence[PastRun], budget: Budget, minutes_each: float) -> int:
    """Return the planned evaluations: the smaller of their budget and what the minutes allow at the median rate.

    Without a limit on either, return the median of the past runs.
    """
    limits = [] if budget.evaluations is None else [budget.evaluations]
    if budget.minutes is not None and minutes_each > 0:
        limits.append(max(1, int(budget.minutes / minutes_each)))
    return min(limits, default=round(float(np.median([run.evaluations for run in past]))))


def _range(rates: Sequence[float], planned: int, limit: Any) -> Range | None:
    if not rates:
        return None
    # Quantiles instead of extremes: one run with a hanging model server should not widen every estimate.
    ends = np.quantile(rates, [_LOW, _HIGH]) * planned
    low, high = (float(end if limit is None else min(end, float(limit))) for end in ends)
    return Range(low, high)


def _newest(runs: QuerySet[Run]) -> list[Run]:
    """Return the newest runs, annotated with `unpriced`: whether the cost of an answered call is unknown."""
    answered = LlmCall.objects.filter(run=OuterRef("pk"), state=CallState.ANSWERED, cost_usd=None)
    unpriced = Exists(answered.exclude(provider__in=BUILT_IN))
    return list(runs.annotate(unpriced=unpriced).order_by("-created_at")[:MOST_RUNS])


def _past(runs: Iterable[Run]) -> list[PastRun]:
    return [
        PastRun(
            evaluations=run.spent_evaluations,
            minutes=run.elapsed_s() / 60,
            device_minutes=run.spent_device_s / 60,
            tokens=run.spent_tokens,
            usd=None if run.unpriced else float(run.spent_usd),  # type: ignore[attr-defined]
        )
        for run in runs
    ]


def _models(providers: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Map each role to its provider and model."""
    entries = {role: {"provider": entry} if isinstance(entry, str) else entry for role, entry in providers.items()}
    return {role: (str(entry.get("provider", "")), str(entry.get("model", ""))) for role, entry in entries.items()}


def as_plain(found: Estimate) -> dict[str, Any]:
    """Return the estimate as JSON-compatible dictionaries for the page's script."""
    return asdict(found)
