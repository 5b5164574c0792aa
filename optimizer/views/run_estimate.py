"""Estimate on the start form what a run will take, and warn if nothing would be measured or varied."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.forms.start_run import StartRunForm
from optimizer.models import Problem, Run, Target
from optimizer.queries.budgets import Budget
from optimizer.queries.estimate import Estimate, Range, estimate_run
from optimizer.queries.runners import absence_of_runners
from optimizer.runs.history import open_version
from optimizer.runs.languages import languages_for
from runners.dispatch import DISPATCHERS
from runners.job import Source
from runners.problems.base import ProblemError

MOST_EARLIER = 10


@dataclass(frozen=True)
class EstimateLine:
    """Hold one figure, such as `Time`, `4 to 9 minutes`."""

    label: str
    text: str


@dataclass(frozen=True)
class RunEstimate:
    """Hold the estimate for the run that the form describes.

    `absence` is a warning if no runner would measure it, `obstacle` one if the strategy would change nothing.
    `limits` are its limits in words.
    """

    expected: Estimate
    lines: list[EstimateLine]
    absence: str
    limits: list[str]
    obstacle: str = ""


def estimate_of(form: StartRunForm) -> RunEstimate | None:
    """Return the estimate, or None while problem or target is invalid."""
    problem, target = form.sound("problem"), form.sound("target")
    if problem is None or target is None:
        return None
    found = estimate_run(
        problem,
        target,
        form.strategy_name,
        form.sound_budget(),
        seen_by=form.user,
        providers=form.sound_providers(),
    )
    dispatcher = form.sound("dispatcher")
    absence = absence_of_runners(target.key, dispatcher) if dispatcher in DISPATCHERS else ""
    asks = form.strategy_class.needs_model
    obstacle = _obstacle(form, problem, target)
    return RunEstimate(found, _lines(found, asks), absence, _limits(form.sound_budget(), asks), obstacle)


def _obstacle(form: StartRunForm, problem: Problem, target: Target) -> str:
    """Say why the strategy would change none of the kernels from which the run starts; empty where it would."""
    languages = languages_for(target.key)
    try:
        seeds = open_version(problem.latest_id()).seeds
    except ProblemError:
        return ""
    sources = [seed.source for seed in seeds if seed.source.language in languages]
    strategy = form.strategy_class
    # Kernels of earlier runs are read only where the seeds give nothing to vary, which is rare.
    return strategy.obstacle(sources) and strategy.obstacle([*sources, *_earlier_sources(form, problem, target)])


def _earlier_sources(form: StartRunForm, problem: Problem, target: Target) -> list[Source]:
    """Return the leaders of the earlier runs with whose kernels a warm start may begin."""
    runs = Run.objects.visible_to(form.user).filter(team=form.sound("team"), target=target)
    led = runs.filter(problem_version__problem=problem).exclude(best_kernel=None).select_related("best_kernel")
    return [run.best_kernel.as_source() for run in led.order_by("-pk")[:MOST_EARLIER] if run.best_kernel]


def _lines(found: Estimate, asks: bool) -> list[EstimateLine]:
    """Return time and device time; also dollars and tokens where a model is asked."""
    told = [("Time", _minutes(found.minutes)), ("Device", _minutes(found.device_minutes))]
    if asks:
        told += [("Cost", _dollars(found)), ("Tokens", _between(found.tokens, "{:,.0f}", "{:,.0f}"))]
    return [EstimateLine(label, text) for label, text in told if text]


def _limits(budget: Budget, asks: bool) -> list[str]:
    """Return each limit in words; without a model, dollars and tokens cannot be reached."""
    told = [
        (budget.evaluations, "{:,} evaluations"),
        (budget.minutes, "{:g} minutes"),
        (budget.device_minutes, "{:g} device minutes"),
        *([(budget.usd, "${:.2f}"), (budget.tokens, "{:,} tokens")] if asks else []),
    ]
    return [form.format(limit) for limit, form in told if limit is not None]


def _minutes(found: Range | None) -> str:
    if found is not None and found.high < 2:
        return _between(Range(found.low * 60, found.high * 60), "{:.0f}", "{:.0f} seconds")
    return _between(found, "{:.0f}", "{:.0f} minutes")


def _dollars(found: Estimate) -> str:
    if found.usd is None:
        # Runs of other strategies tell of device time alone.
        return "unknown: no prices on record for these runs" if found.tokens is not None else ""
    return _between(found.usd, "${:.2f}", "${:.2f}")


def _between(found: Range | None, low_form: str, high_form: str) -> str:
    """Return `4 to 9 minutes`, or `about 4 minutes` where both ends read the same."""
    if found is None:
        return ""
    low, high = low_form.format(found.low), high_form.format(found.high)
    return f"about {high}" if high.startswith(low) and low == low_form.format(found.high) else f"{low} to {high}"
